"""What to do about a model that cannot be used as configured: a sentence, and the lines to paste."""

from __future__ import annotations

import difflib
import glob
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pytest_spiral.chat import TOKEN_LIMITS, ChatReply, ChatRequest, token_limit
from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.models.endpoint import OPTION_OF, Secret, clean, env_name
from pytest_spiral.models.environment import as_environment
from pytest_spiral.models.parameters import PARAMETERS
from pytest_spiral.run.plan import ModelPlan, default_models
from pytest_spiral.status import ReasonCode

_MOST_NAMES = 3
_SIMILAR = 0.5
_COMMAND_LINE = "on the command line"
# Codes of calls that met no server, or none that speaks the API.
_ADDRESS = (ReasonCode.UNREACHABLE, ReasonCode.TIMEOUT, ReasonCode.BAD_RESPONSE)


def unusable(
    model: ModelPlan, error: ChatError, folder: Path, environ: Mapping[str, str], listed: Collection[str] | None = None
) -> ConfigError:
    """The error for a model whose endpoint refuses to answer. listed: the models that the endpoint lists."""
    option, refusal = OPTION_OF[model.role], error.refusal
    if error.code is ReasonCode.AUTH:
        endpoint = model.endpoint
        variable = endpoint and (endpoint.key_variable or endpoint.preset.key_variable)
        return _told(model, str(error), *_variable(variable or env_name(model.role, "API_KEY"), "your key", environ))
    redirected = error.http_status is not None and 300 <= error.http_status < 400
    unknown = refusal is not None and refusal.parameter == "model"
    if unknown and model.endpoint and model.endpoint.preset.name and not listed:
        # A service that is known has said so in its own words: the address is right.
        return _told(model, f"{error}; correct it on the command line{_in_the_file(folder)}")
    if error.code in _ADDRESS or redirected or (unknown and not listed):
        return _told(model, str(error), *_address(model, folder, environ))
    if refusal is None:
        return _told(model, str(error))
    name = refusal.parameter
    if name == "model":
        names = nearest(model.model_id, listed or ())
        if not names:
            says = f"{error}; the endpoint lists {len(listed or ())} other models, none with a similar name"
            return _told(model, says, *_address(model, folder, environ))
        says = f"{error}; the endpoint lists {', '.join(names)}{_in_the_file(folder)}"
        return _told(model, says, _COMMAND_LINE, [f"{option}={names[0]}"])
    if name == "response_format" and model.role == "evaluated":
        return _told(model, str(error), _COMMAND_LINE, ["--prompting=raw"])
    value: object = "unset"
    if name in TOKEN_LIMITS and refusal.most is not None:
        value = refusal.most
    elif name == "reasoning_effort" and refusal.allowed:
        value = refusal.allowed[len(refusal.allowed) // 2]
    key = name if name in PARAMETERS else f"extra_body.{name}"
    reason = f"{error}; {name} is set in spiral.toml" if _is_chosen(model, name) else str(error)
    return _told(model, reason, *_toml(model, folder, f"{key} = {json.dumps(value)}"))


def unusable_reply(model: ModelPlan, reason: str, request: ChatRequest, reply: ChatReply, folder: Path) -> ConfigError:
    """The error for a model that answers, but not with what the run needs."""
    limit = token_limit(request.params)
    if reply.finish == "length" and limit is not None:
        own = any(_is_chosen(model, name) for name in TOKEN_LIMITS)
        says = f"the reply was cut off at {limit}, the limit in spiral.toml" if own else reason
        line = f"{limit.name if own else 'most_tokens'} = {8 * limit.value}"
        return _told(model, says, *_toml(model, folder, line))
    if not reply.text.strip() and reply.reasoning:
        line = "extra_body.chat_template_kwargs = { enable_thinking = false }"
        says = (
            f"{reason}: all of it comes as reasoning. Start the server without its reasoning parser, or, where it runs "
            "vLLM or SGLang, switch thinking off"
        )
        return _told(model, says, *_toml(model, folder, line))
    if model.role in ("judge", "reply_judge"):
        says, other = f"{reason}; name a judge that keeps to a JSON schema", str(default_models()["judge_model"])
        lines = [] if model.spec.rpartition("/")[2] == other else [f"{OPTION_OF[model.role]}={other}"]
        return _told(model, says, _COMMAND_LINE if lines else "", lines)
    return _told(model, reason)


def _told(model: ModelPlan, reason: str, where: str = "", lines: Sequence[str] = ()) -> ConfigError:
    pasted = [f"Paste {where}:", *(f"    {line}" for line in lines)] if lines else []
    replaced = ((model.spec, lines[0]),) if where == _COMMAND_LINE else ()
    return ConfigError("\n".join([f"{OPTION_OF[model.role]} {model.spec}: {reason}", *pasted]), replaced)


def _is_chosen(model: ModelPlan, name: str) -> bool:
    return any(name in freedom.chosen for freedom in model.freedom.values())


def _in_the_file(folder: Path) -> str:
    path = folder / "spiral.toml"
    return f". Where a `match` in {path} has the wrong name, correct it there too" if path.is_file() else ""


def _toml(model: ModelPlan, folder: Path, line: str) -> tuple[str, list[str]]:
    """Where a table for the model goes, and the table. The first table that has a key counts."""
    path = folder / "spiral.toml"
    where = f"above the other tables of {path}" if path.is_file() else f"into a new file {path}"
    # A name may hold what a pattern takes for a wildcard.
    match = json.dumps(glob.escape(model.spec), ensure_ascii=False)
    return where, ["[[model]]", f"match = {match}", f'role = "{model.role}"', line]


def _variable(name: str, value: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Where a variable is corrected: where it is set, because the environment comes before the file."""
    if name in as_environment(environ).exported:
        return "in the shell, because the environment comes before .env", [f"export {name}='{value}'"]
    return "in .env", [f"{name}={value}"]


def _address(model: ModelPlan, folder: Path, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Where the address of a model goes. The right one is not known."""
    name = (model.endpoint.url_name if model.endpoint is not None else "") or env_name(model.role, "BASE_URL")
    if name.isupper():
        where, lines = _variable(name, "https://HOST/v1", environ)
    else:
        where, lines = _toml(model, folder, 'base_url = "https://HOST/v1"')
        # The pasted table stands for the one below it, whose provider it would lose.
        if model.endpoint is not None and model.endpoint.preset.name:
            lines.insert(-1, f"provider = {json.dumps(model.endpoint.preset.name)}")
    return f"{where}, with the right address", lines


def nearest(name: str, listed: Collection[str]) -> list[str]:
    """The listed names that somebody who wrote `name` may have meant, the likeliest first. They are foreign text."""
    shown = {each: clean(each, Secret()) for each in listed}
    usable = sorted(each for each in listed if each == shown[each] and not any(c.isspace() for c in each))
    bare = name.rpartition("/")[2].lower()
    same = [each for each in usable if each.rpartition("/")[2].lower() == bare]
    similar = difflib.get_close_matches(name, usable, _MOST_NAMES, _SIMILAR)
    return [*dict.fromkeys([*same, *similar])][:_MOST_NAMES]
