"""Say why brokers refuse or are not reached, in words that name the settings to look at and never a secret."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient

from secondsight.errors import Permanent, Rejected, Retryable
from secondsight.log.kafka.config import KafkaConfig

Client = TypeVar("Client")
NOTHING: Mapping[str, Any] = {}
ATTEMPT_SECONDS = 1.0
_FENCED = frozenset({kafka.KafkaError.FENCED_INSTANCE_ID, kafka.KafkaError._FATAL})
_OF_TLS = ("certificate", "SSL routines", "ssl/tls alert")
_SETTINGS = {
    "ssl.ca.location": "kafka.ca_file",
    "ssl.certificate.location": "kafka.certificate_file",
    "ssl.key.location": "kafka.key_file",
    "sasl.mechanism": "kafka.sasl_mechanism",
}


class Fenced(Rejected):
    """The group has let another member in under this one's name."""


class Trouble:
    """Hears what a client has to say of its connections; called by whichever thread serves the client."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._last: kafka.KafkaError | None = None

    def __call__(self, error: kafka.KafkaError) -> None:
        """Remember an error that says more than that all is down."""
        if error.code() != kafka.KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def refusal(self) -> Rejected | None:
        """Return why the brokers will not have this client, if that is what it heard last, and forget it."""
        heard, self._last = self._last, None
        return None if heard is None else _refusal(self._config, heard)

    def check(self, what: str) -> None:
        """Say that the brokers will not have this client, if that is what it heard last; told once.

        Raises:
            Retryable: It is.
        """
        refused = self.refusal()
        if refused is not None:
            raise Retryable(f"{what}: {refused.message}; {refused.hint}")

    def failure(self, what: str, error: kafka.KafkaError) -> Retryable | Permanent:
        """Return the error to raise for one that a call gave: what was last heard says more than a time-out does."""
        if error.code() in _FENCED:
            return Fenced(
                "instance_taken",
                f"{what}: another process has joined as kafka.instance {self._config.instance!r}, or the client failed",
                "give every processor a kafka.instance of its own",
            )
        heard, self._last = self._last, None
        for cause in (error, heard):
            refused = None if cause is None else _refusal(self._config, cause)
            if refused is not None:
                return Retryable(f"{what}: {refused.message}; {refused.hint}")
        more = f" ({heard.str()})" if heard is not None and error.code() in _VAGUE else ""
        return Retryable(f"{what}: {error.str()}{more}")


_VAGUE = frozenset(
    {
        kafka.KafkaError._TRANSPORT,
        kafka.KafkaError._TIMED_OUT,
        kafka.KafkaError._MSG_TIMED_OUT,
        kafka.KafkaError._ALL_BROKERS_DOWN,
    }
)


def new_client(
    made: Callable[[dict[str, Any]], Client], config: KafkaConfig, trouble: Trouble, told: Mapping[str, Any] = NOTHING
) -> Client:
    """Return a client of librdkafka, made of the settings and what else it is told.

    Raises:
        Rejected: `bad_config`: none can be made of them.
    """
    try:
        return made(config.client(trouble) | dict(told))
    except kafka.KafkaException as error:
        text = error_of(error).str()
        for name, own in _SETTINGS.items():
            text = text.replace(name, own)
        message = f"no client of the brokers {config.brokers} can be made: {text}"
        raise Rejected("bad_config", message, "check the settings of kafka that it names") from error


def error_of(error: kafka.KafkaException) -> kafka.KafkaError:
    """Return what an exception of the client holds."""
    held = error.args[0] if error.args else None
    return held if isinstance(held, kafka.KafkaError) else kafka.KafkaError(kafka.KafkaError._FAIL, str(error))


def wait_for_brokers(client: AdminClient, config: KafkaConfig, trouble: Trouble) -> None:
    """Wait until brokers answer a client.

    Raises:
        Rejected: `log_refused`, `log_untrusted`: they will not have it.
        Retryable: They do not answer in `open_seconds`.
    """
    attempts = math.ceil(config.open_seconds / ATTEMPT_SECONDS)
    for left in reversed(range(attempts)):
        try:
            client.list_topics(timeout=min(ATTEMPT_SECONDS, config.open_seconds))
        except kafka.KafkaException as error:
            client.poll(0)
            refused = trouble.refusal()
            if refused is not None:
                raise refused from None
            if not left:
                raise trouble.failure(f"the brokers {config.brokers} do not answer", error_of(error)) from None
        else:
            return


def _refusal(config: KafkaConfig, error: kafka.KafkaError) -> Rejected | None:
    text = error.str()
    if error.code() in (kafka.KafkaError._AUTHENTICATION, kafka.KafkaError.SASL_AUTHENTICATION_FAILED):
        return Rejected(
            "log_refused",
            f"the brokers {config.brokers} refuse user {config.sasl_username!r} by {config.sasl_mechanism or 'no SASL'}"
            f" with the password in {config.sasl_password_file}: {text}",
            "check kafka.sasl_mechanism, kafka.sasl_username and kafka.sasl_password_file",
        )
    if error.code() == kafka.KafkaError._SSL or any(word in text for word in _OF_TLS):
        return Rejected(
            "log_untrusted",
            f"no TLS with the brokers {config.brokers}: {text}",
            "check kafka.security and kafka.ca_file, and kafka.certificate_file and kafka.key_file where brokers ask "
            "for them",
        )
    return None
