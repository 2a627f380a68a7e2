"""Ask a language model over HTTP: any endpoint that speaks OpenAI's chat completions, or Anthropic's messages.

Only the standard library. A key comes from the environment or a file, goes into one header, and is never logged or put
into an error. What a model says is text of an untrusted author.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from secondsight.errors import Permanent, Rejected, Retryable

REPLY_BYTES = 1 << 20
ANTHROPIC_VERSION = "2023-06-01"
_OK = 200
_LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `role` is `user` or `assistant`."""

    role: str
    text: str


class LanguageModel(Protocol):
    """A model that answers a conversation with text. Blocks up to its deadline; safe from several threads."""

    name: str

    def complete(self, system: str, messages: Sequence[Message]) -> str:
        """Return what the model says.

        Raises:
            Retryable: The endpoint is away or busy.
            Permanent: The endpoint refuses, or its answer cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model that questions in words may be given to; none is needed.

    Attributes:
        kind: `none`, `openai` (any endpoint that speaks its chat completions) or `anthropic`.
        url: Address up to the version: `http://127.0.0.1:11434/v1`, `https://api.anthropic.com/v1`.
        model: Name of the model at that address.
        key_file: File that holds the API key.
        key_variable: Variable of the environment that holds it, where there is no file.
        timeout_seconds: How long one completion may take, > 0.
        tokens: Most tokens of one completion, > 0.
    """

    kind: str = "none"
    url: str = ""
    model: str = ""
    key_file: Path | None = None
    key_variable: str = ""
    timeout_seconds: float = 30.0
    tokens: int = 1_500

    def __post_init__(self) -> None:
        """Refuse settings that name no model.

        Raises:
            Rejected(bad_config): The kind is unknown, or address or model are missing.
        """
        if self.kind not in ("none", "openai", "anthropic"):
            raise Rejected("bad_config", "the kind of model is none, openai or anthropic", "none needs no model")
        if self.kind == "none":
            return
        if urlsplit(self.url).scheme not in ("http", "https") or not self.model:
            raise Rejected("bad_config", "a model needs an address and a name", 'url = "http://127.0.0.1:11434/v1"')
        if self.timeout_seconds <= 0 or self.tokens <= 0:
            raise Rejected("bad_config", "deadline and tokens of a model must be positive")


def make_model(config: ModelConfig, environment: Mapping[str, str]) -> LanguageModel | None:
    """Return the model of some settings, or None where there is none; its key comes from a file or the environment.

    Raises:
        Rejected(bad_config): The key's file cannot be read.
    """
    if config.kind == "none":
        return None
    key = _key(config, environment)
    return OpenAiModel(config, key) if config.kind == "openai" else AnthropicModel(config, key)


def _key(config: ModelConfig, environment: Mapping[str, str]) -> str:
    if config.key_file is None:
        return environment.get(config.key_variable, "")
    try:
        return config.key_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"the model's key in {config.key_file} cannot be read: {error.strerror}"
        raise Rejected("bad_config", message, "make the file readable for the api") from None


class OpenAiModel:
    """An endpoint that speaks OpenAI's chat completions (vLLM, Ollama, hosted ones)."""

    def __init__(self, config: ModelConfig, key: str) -> None:
        self.name = config.model
        self._config = config
        self._key = key

    def complete(self, system: str, messages: Sequence[Message]) -> str:
        """Return what the model says; see `LanguageModel`."""
        turns = [{"role": "system", "content": system}]
        turns += [{"role": message.role, "content": message.text} for message in messages]
        body = {
            "model": self._config.model,
            "messages": turns,
            "temperature": 0,
            "max_tokens": self._config.tokens,
            "response_format": {"type": "json_object"},
        }
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        answer = post_json(f"{self._config.url.rstrip('/')}/chat/completions", body, headers, self._config)
        try:
            return str(answer["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError):
            raise _unreadable() from None


class AnthropicModel:
    """Anthropic's messages."""

    def __init__(self, config: ModelConfig, key: str) -> None:
        self.name = config.model
        self._config = config
        self._key = key

    def complete(self, system: str, messages: Sequence[Message]) -> str:
        """Return what the model says; see `LanguageModel`."""
        turns = [{"role": message.role, "content": message.text} for message in messages]
        body = {
            "model": self._config.model,
            "system": system,
            "messages": turns,
            "temperature": 0,
            "max_tokens": self._config.tokens,
        }
        headers = {"x-api-key": self._key, "anthropic-version": ANTHROPIC_VERSION}
        answer = post_json(f"{self._config.url.rstrip('/')}/messages", body, headers, self._config)
        try:
            return "".join(str(part["text"]) for part in answer["content"] if part["type"] == "text")
        except (KeyError, TypeError):
            raise _unreadable() from None


def post_json(url: str, body: Mapping[str, Any], headers: Mapping[str, str], config: ModelConfig) -> Any:
    """Return the JSON that an endpoint answers a POST with; redirects are not followed.

    Raises:
        Retryable: It is away, busy, or says to come back.
        Permanent: It refuses, or answers something else than JSON, or too much of it.
    """
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=config.timeout_seconds)
    sent = {"content-type": "application/json", "accept": "application/json", **headers}
    try:
        connection.request("POST", parts.path, json.dumps(body), sent)
        response = connection.getresponse()
        text = response.read(REPLY_BYTES + 1)
    except (OSError, HTTPException, UnicodeError) as error:
        message = f"the model's endpoint does not answer ({type(error).__name__})"
        raise Retryable(message) from None
    finally:
        connection.close()
    return _json_of(response.status, text)


def _json_of(status: int, text: bytes) -> Any:
    if status in _LATER:
        message = f"the model's endpoint is busy (status {status})"
        raise Retryable(message)
    if status != _OK or len(text) > REPLY_BYTES:
        message = f"the model's endpoint refuses (status {status})"
        raise Permanent(message)
    try:
        return json.loads(text)
    except ValueError:
        raise _unreadable() from None


def _unreadable() -> Permanent:
    return Permanent("the model's endpoint answers in another form than its kind promises")
