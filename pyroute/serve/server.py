"""The server of the live page: the standard library's, one thread for each connection.

GET / is the page, /data its document, /events the documents as they come (server-sent events),
/metrics the counters for Prometheus, /health whether sources can be read. Nothing can be written.

Who may ask: on a loopback address without a token, whoever names it as loopback in `Host`, so that
a web site whose name resolves to 127.0.0.1 gets nothing (DNS rebinding). Else whoever has the
token, by whatever name, as of a proxy: as `?token=` once, which becomes a cookie, or as
`Authorization: Bearer`.

Guarantees, each a test of that name in tests/test_serve.py:
  read_only      every method but GET and HEAD is refused
  rebinding      on loopback another name in Host gets nothing
  token          on any other address nobody gets anything without it
  survives       sources that are missing, locked or damaged are shown, and read again
"""

from __future__ import annotations

import hmac
import http.server
import ipaddress
import json
import logging
import re
import secrets
import socket
import socketserver
import threading
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote

from pyroute import metrics
from pyroute.report.writer import page_html
from pyroute.serve.watch import Watcher

_LOG = logging.getLogger("pyroute.serve")

REQUESTS = metrics.REGISTRY.counter("pyroute_serve_requests", "Answers by status.", ["status"])

MOST = 64
"""Connections that are served at one time."""
KEEP_ALIVE = 10.0
"""Seconds after which an idle stream of events says that it is there."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{1,5})?")
_COOKIE = "pyroute_token_{port}"  # browsers give a cookie to all ports of a host
_TOKEN = re.compile(r"[!#-+\--:<-\[\]-~]{1,200}")  # RFC 6265, cookie-octet
_TIMEOUT = 30.0


class Server:
    """The page on one address and port.

    Parameters
    ----------
    watcher
        What is shown.
    host, port
        Where; port 0 is any that is free.
    token
        What a caller has to know; on an address that is not loopback one is made where none is
        given.
    """

    def __init__(
        self, watcher: Watcher, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        self.watcher = watcher
        self.loopback = is_loopback(host)
        if token is None and not self.loopback:
            token = secrets.token_urlsafe(24)
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError(
                "token: expected 1 to 200 ASCII characters that a cookie may hold: no space, no"
                " quote, no comma, semicolon or backslash"
            )
        self.token = token
        self._slots = threading.BoundedSemaphore(MOST)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = self

        class Http(socketserver.ThreadingMixIn, socketserver.TCPServer):
            address_family = family
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
                _LOG.debug("%s", client_address, exc_info=True)

        class Handler(_Handler):
            page = server

        self._http = Http((host, port), Handler)
        self.host, self.port = host, int(self._http.server_address[1])
        self.cookie = _COOKIE.format(port=self.port)
        self.boot = secrets.token_hex(4)  # numbers of pages start again with every server
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """What to open."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        query = "" if self.token is None else f"?token={quote(self.token, safe='')}"
        return f"http://{host}:{self.port}/{query}"

    def start(self) -> None:
        """Answer in a thread of its own until `stop`."""
        self.watcher.start()
        self._thread = threading.Thread(
            target=lambda: self._http.serve_forever(poll_interval=0.2),
            name="pyroute-serve",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """End it; streams of events end too."""
        self.watcher.stop()
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join(timeout=10)
        self._http.server_close()

    # -- who may ask

    def known_host(self, header: str | None) -> bool:
        """Whether `Host` names this server as it is meant to be named."""
        if self.token is not None:
            return True  # it decides: a site that is rebound to this address has no cookie of it
        found = _HOST.fullmatch(header or "")
        return found is not None and is_loopback((found[1] or found[2]).lower())

    def known_token(self, given: str | None) -> bool:
        """Whether it is the token; compared in constant time."""
        if self.token is None:
            return True
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def enter(self) -> bool:
        """Take one of the places for connections."""
        return self._slots.acquire(blocking=False)

    def leave(self) -> None:
        """Give it back."""
        self._slots.release()


def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(http.server.BaseHTTPRequestHandler):
    page: Server
    protocol_version = "HTTP/1.1"
    server_version = "pyroute"
    sys_version = ""
    timeout = _TIMEOUT

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """To the log of pyroute, without the query, which may hold the token."""
        _LOG.debug("%s %s", self.address_string(), (format % args).partition("?")[0])

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def __getattr__(self, name: str) -> Any:
        """Every other method is refused: nothing can be changed here."""
        if name.startswith("do_"):
            return lambda: self._send(
                HTTPStatus.METHOD_NOT_ALLOWED, "read-only\n", allow="GET, HEAD"
            )
        raise AttributeError(name)

    def _answer(self, body: bool) -> None:
        if not self.page.enter():
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections\n")
            return
        try:
            self._route(body)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True  # the reader went away
        except ValueError as error:  # a query that cannot be read
            self._send(HTTPStatus.BAD_REQUEST, f"{error}\n", body=body)
        finally:
            self.page.leave()

    def _route(self, body: bool) -> None:
        if not self.page.known_host(self.headers.get("Host")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "Host: expected localhost\n", body=body)
            return
        path, _, query = self.path.partition("?")
        given = parse_qs(query, max_num_fields=20).get("token", [None])[0]
        if given is not None and self.page.token is not None and self.page.known_token(given):
            self._send(HTTPStatus.SEE_OTHER, "", body=body, location="/", cookie=given)
            return
        if not self.page.known_token(self._token()):
            text = "token: open the address that pyroute serve printed\n"
            self._send(HTTPStatus.UNAUTHORIZED, text, body=body)
            return
        answers = {
            "/": self._page,
            "/data": self._data,
            "/events": self._events,
            "/metrics": self._metrics,
            "/health": self._health,
        }
        answer = answers.get(path)
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, "not found\n", body=body)
        else:
            answer(body)

    def _token(self) -> str | None:
        bearer = self.headers.get("Authorization", "")
        if bearer.startswith("Bearer "):
            return bearer.removeprefix("Bearer ").strip()
        for part in self.headers.get("Cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.page.cookie:
                return value
        return None

    # -- answers

    def _page(self, body: bool) -> None:
        _, text = self.page.watcher.current
        document = json.loads(text)
        html = page_html(document["title"], document, live=True)
        self._send(HTTPStatus.OK, html, "text/html; charset=utf-8", body=body)

    def _data(self, body: bool) -> None:
        _, text = self.page.watcher.current
        self._send(HTTPStatus.OK, text, "application/json", body=body)

    def _metrics(self, body: bool) -> None:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        self._send(HTTPStatus.OK, metrics.REGISTRY.text(), kind, body=body)

    def _health(self, body: bool) -> None:
        problems = self.page.watcher.problems
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        self._send(status, "".join(f"{one}\n" for one in problems) or "ok\n", body=body)

    def _events(self, body: bool) -> None:
        self.close_connection = True
        self._head(HTTPStatus.OK, "text/event-stream; charset=utf-8", None)
        if not body:
            return
        version = 0
        boot, _, last = self.headers.get("Last-Event-ID", "").partition("-")
        if boot == self.page.boot and last.isascii() and last.isdigit():
            version = int(last)  # a reader that comes back has that page already
        while not self.page.watcher.stopped:
            now, text = self.page.watcher.wait(version, KEEP_ALIVE)
            if now == version:
                self.wfile.write(b": still here\n\n")
            else:
                version = now
                self.wfile.write(f"id: {self.page.boot}-{now}\ndata: {text}\n\n".encode())
            self.wfile.flush()

    def _send(
        self,
        status: HTTPStatus,
        text: str,
        kind: str = "text/plain; charset=utf-8",
        *,
        body: bool = True,
        **more: str,
    ) -> None:
        data = text.encode()
        self._head(status, kind, len(data), **more)
        if body:
            self.wfile.write(data)

    def _head(self, status: HTTPStatus, kind: str, length: int | None, **more: str) -> None:
        REQUESTS.add(1, status=int(status))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if length is not None:
            self.send_header("Content-Length", str(length))
        if status >= 400 or length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        if "location" in more:
            self.send_header("Location", more["location"])
        if "allow" in more:
            self.send_header("Allow", more["allow"])
        if "cookie" in more:
            # Lax: after the redirect the cookie also comes where a link elsewhere was followed.
            value = f"{self.page.cookie}={more['cookie']}; HttpOnly; SameSite=Lax; Path=/"
            self.send_header("Set-Cookie", value)
        self.end_headers()
