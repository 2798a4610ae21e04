"""The connection between the head and an agent: both show that they know the token, then they exchange messages, each
a JSON object, some with bytes behind it. The token itself never travels; what follows is not encrypted."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import stat
import struct
import time

VERSION = 1
_MOST_JSON, _MOST_BYTES = 16 << 20, 1 << 20
_BEFORE_PROOF = 1024  # no message may be longer until the other end has shown that it knows the token
_HEADER = struct.Struct("<II")
_SHORTEST_TOKEN = 16
_NONCE, _PROOF = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{64}")


class ChannelError(Exception):
    """The other end is gone, or is not who it should be."""


def read_token(path: str) -> bytes:
    """The secret in a file that belongs to this user and that nobody else can read; ValueError says what is wrong."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            token = file.read(4097).strip()
    except OSError as reason:
        how = f"; make one with: (umask 077; head -c 32 /dev/urandom | base64 > {path})"
        missing = isinstance(reason, FileNotFoundError)
        text = f"the token file '{path}' cannot be read ({reason.strerror})"
        raise ValueError(text + how if missing else text) from None
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ValueError(f"the token file '{path}' has mode {stat.S_IMODE(status.st_mode):04o} and owner "
                         f"{status.st_uid}; accepted: a file of yours with mode 0600")  # fmt: skip
    if not _SHORTEST_TOKEN <= len(token) <= 4096:
        raise ValueError(f"the token in '{path}' has {len(token)} bytes; accepted: {_SHORTEST_TOKEN} to 4096")
    return token


def parse_address(text: str, default_port: int) -> tuple[str, int]:
    """`HOST[:PORT]`, an IPv6 address in brackets; ValueError says what is wrong."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65534:
        raise ValueError(f"'{text}' is no address; accepted: HOST or HOST:PORT with a port below 65535")
    return host, int(port)


class Channel:
    """One end. Sending blocks up to the time limit; receiving is by what has come (`feed`), or waits (`receive`)."""

    def __init__(self, connected: socket.socket, timeout_s: float):
        connected.settimeout(timeout_s)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.heard = time.monotonic()  # when something came last
        self.deadline = time.monotonic() + timeout_s  # for all that receive() waits for
        self.key = b""  # what both ends, and nobody else, know
        self._buffer = bytearray()
        self._limit = _BEFORE_PROOF

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def prove(self, what: str) -> bytes:
        """For another connection between the same two: proof that its maker knows this one's key."""
        return hmac.digest(self.key, what.encode(), "sha256")

    def greet_agent(self, token: bytes) -> None:
        """The head's side of the greeting."""
        ours = secrets.token_hex(16)
        self.send({"prism": VERSION, "nonce": ours})
        answer = self.receive()
        theirs = _text(answer, "nonce", _NONCE)
        if not hmac.compare_digest(_text(answer, "proof", _PROOF), _proof(token, "agent", ours, theirs)):
            raise ChannelError("it does not know the token")
        self.send({"proof": _proof(token, "head", ours, theirs)})
        self._admit(token, ours, theirs)

    def greet_head(self, token: bytes) -> None:
        """The agent's side of the greeting."""
        first = self.receive()
        if first.get("prism") != VERSION:
            raise ChannelError(f"it is no head of this version (its greeting says {str(first.get('prism'))[:20]})")
        ours, theirs = _text(first, "nonce", _NONCE), secrets.token_hex(16)
        self.send({"nonce": theirs, "proof": _proof(token, "agent", ours, theirs)})
        try:
            answer = self.receive()
        except ChannelError:
            raise ChannelError("it refuses this agent: the two have different tokens") from None
        if not hmac.compare_digest(_text(answer, "proof", _PROOF), _proof(token, "head", ours, theirs)):
            raise ChannelError("it does not know the token")
        self._admit(token, ours, theirs)

    def _admit(self, token: bytes, ours: str, theirs: str) -> None:
        self.key = hmac.digest(token, f"run {ours} {theirs}".encode(), hashlib.sha256)
        self._limit = _MOST_JSON

    def send(self, message: dict, data: bytes | memoryview = b"") -> None:
        body = json.dumps(message).encode()
        try:
            self.socket.sendall(_HEADER.pack(len(body), len(data)) + body + data)
        except OSError as reason:
            raise ChannelError(f"the connection is lost ({reason.strerror or reason})") from None

    def receive(self) -> dict:
        """The next message, which has no bytes behind it."""
        while True:
            for message, _ in self.messages():
                return message
            # However slowly the other end speaks.
            if (left := self.deadline - time.monotonic()) <= 0:
                raise ChannelError("it has not said what it should in time")
            self.socket.settimeout(left)
            if not self.feed():
                raise ChannelError("the connection has closed")

    def feed(self) -> bool:
        """Takes in what has come, or waits for it where the socket is a blocking one; False at the end."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError as reason:
            raise ChannelError(f"the connection is lost ({reason.strerror or reason})") from None
        self._buffer += data
        if data:
            self.heard = time.monotonic()
        return bool(data)

    def messages(self):
        """(message, bytes) of all that is complete."""
        while len(self._buffer) >= _HEADER.size:
            body, data = _HEADER.unpack_from(self._buffer)
            if body > self._limit or data > (_MOST_BYTES if self.key else 0):
                raise ChannelError(f"it sent a message of {body} and {data} bytes")
            end = _HEADER.size + body + data
            if len(self._buffer) < end:
                return
            whole = bytes(self._buffer[:end])
            del self._buffer[:end]
            try:
                message = json.loads(whole[_HEADER.size : _HEADER.size + body])
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                raise ChannelError("it sent what is no message")
            yield message, whole[_HEADER.size + body :]


def _text(message: dict, key: str, pattern: re.Pattern) -> str:
    value = message.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ChannelError(f"it sent no {key}")
    return value


def _proof(token: bytes, who: str, ours: str, theirs: str) -> str:
    return hmac.new(token, f"{who} {ours} {theirs}".encode(), hashlib.sha256).hexdigest()
