"""The certificate and the key for TLS, checked before anything else is done."""

from __future__ import annotations

import ssl

from service.settings import Settings, SettingsError, shown_flag

_NO_CERTIFICATE = "no certificate in it can be read; it must be PEM"
_NO_KEY = "no private key in it can be read; it must be PEM, and SSL_KEYFILE_PASSWORD its password if it is encrypted"


def check_tls(settings: Settings) -> None:
    """See that uvicorn will be able to use the files.

    Raises:
        SettingsError: names the file at fault.
    """
    if settings.ssl_certfile is None:
        return
    _check_readable("ssl_certfile", settings.ssl_certfile)
    key_setting, key_file = "ssl_certfile", settings.ssl_certfile
    if settings.ssl_keyfile is not None:
        key_setting, key_file = "ssl_keyfile", settings.ssl_keyfile
        _check_readable(key_setting, key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(settings.ssl_certfile)
    except ssl.SSLError:
        raise _fault("ssl_certfile", settings.ssl_certfile, _NO_CERTIFICATE) from None
    password = settings.ssl_keyfile_password
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(
            settings.ssl_certfile, key_file, password="" if password is None else password.get_secret_value()
        )
    except ssl.SSLError as error:
        is_other = error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
        fault = f"not the key of the certificate in {settings.ssl_certfile!r}" if is_other else _NO_KEY
        raise _fault(key_setting, key_file, fault) from None


def _check_readable(setting: str, path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise _fault(setting, path, str(error.strerror)) from None


def _fault(setting: str, path: str, fault: str) -> SettingsError:
    return SettingsError(f"{shown_flag(setting)} is {path!r}: {fault}")
