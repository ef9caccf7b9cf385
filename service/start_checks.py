"""What settings name outside of themselves, files, checked before the service listens or loads."""

from __future__ import annotations

from service.api.api_keys import load_api_keys
from service.settings import Settings, SettingsError
from service.tls import check_tls


def check_start(settings: Settings) -> None:
    """See that the key file and the TLS files can be had.

    Raises:
        SettingsError: with a line per fault.
    """
    faults = []
    for check in (load_api_keys, check_tls):
        try:
            check(settings)
        except SettingsError as error:
            faults.append(str(error))
    if faults:
        raise SettingsError("\n".join(faults))
