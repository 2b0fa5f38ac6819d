"""What the native splicer of Storm's multilang has to give, by a JSON library and nothing else."""

import json
import re
from json.decoder import scanstring

END = b"\nend\n"
FIELDS = {"comp", "tuple", "task", "stream", "id"}
SPACE = re.compile(r"[ \t\n\r]*")


def members(text):
    """The members of a JSON object as [(name, raw name, raw value)], as they stand."""
    decoder = json.JSONDecoder()

    def skip(at):
        return SPACE.match(text, at).end()

    found = []
    at = skip(text.index("{") + 1)
    while text[at] != "}":
        name, after = scanstring(text, at + 1)
        raw_name = text[at:after]
        begin = skip(skip(after) + 1)
        _, end = decoder.raw_decode(text, begin)
        found.append((name, raw_name, text[begin:end]))
        at = skip(end)
        if text[at] == ",":
            at = skip(at + 1)
    return found


def has_identity(value):
    if isinstance(value, str):
        return not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, int):  # and booleans
        return -(2**63) <= value < 2**63
    return value is None


def reply(message, sources, route, stream=None):
    """Bytes to answer a message with, or None where it is handed back.

    Parameters
    ----------
    sources
        `{(component, stream): positions of the key}`.
    route
        Key values -> Storm's id of a task.
    """
    try:
        text = message.decode()
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    raw = members(text)
    names = [name for name, _, _ in raw]
    if set(names) != FIELDS or len(names) != len(FIELDS):
        return None
    if any("\\" in raw_name for _, raw_name, _ in raw):
        return None
    kinds = {"tuple": list, "task": int, "stream": str, "id": str}
    if any(type(parsed[name]) is not kind for name, kind in kinds.items()):
        return None
    component = parsed["comp"]
    if component is not None and type(component) is not str:
        return None
    if any("\ud800" <= c <= "\udfff" for c in (component or "") + parsed["stream"]):
        return None
    if parsed["stream"] == "__heartbeat" and parsed["task"] == -1:
        return b'{"command":"sync"}' + END
    fields = sources.get((component, parsed["stream"]))
    if fields is None or max(fields) >= len(parsed["tuple"]):
        return None
    key = [parsed["tuple"][field] for field in fields]
    if not all(map(has_identity, key)):
        return None
    text_of = {name: value for name, _, value in raw}
    to = f',"stream":{json.dumps(stream)}' if stream is not None else ""
    task = route(key) + 2**32
    emit = (
        f'{{"command":"emit","anchors":[{text_of["id"]}]{to},"task":{task},'
        f'"tuple":{text_of["tuple"]}}}'
    )
    ack = f'{{"command":"ack","id":{text_of["id"]}}}'
    return emit.encode() + END + ack.encode() + END


def splice(data, sources, route, stream=None):
    """Answers to all whole messages, those handed back, and what is left."""
    *messages, rest = data.split(END) if data else [b""]
    out, back = b"", []
    for message in messages:
        answer = reply(message, sources, route, stream)
        if answer is None:
            back.append(message)
        else:
            out += answer
    return out, back, rest
