"""What settings name outside of themselves, files and packages, checked before the service listens or loads."""

from __future__ import annotations

from importlib.util import find_spec

from service.api.api_keys import load_api_keys
from service.settings import Settings, SettingsError, shown_flag
from service.tls import check_tls


def check_start(settings: Settings) -> None:
    """See that the key file, the TLS files and the packages for tracing can be had.

    Raises:
        SettingsError: with a line per fault.
    """
    faults = []
    for check in (load_api_keys, check_tls, _check_tracing):
        try:
            check(settings)
        except SettingsError as error:
            faults.append(str(error))
    if faults:
        raise SettingsError("\n".join(faults))


def _check_tracing(settings: Settings) -> None:
    if settings.otlp_endpoint is None:
        return
    for package in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"):
        if not _is_installed(package):
            raise SettingsError(
                f"{shown_flag('otlp_endpoint')} is {settings.otlp_endpoint!r}: tracing needs packages that are not "
                "installed; install them with: pip install 'bert-service[otel]'"
            )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False
