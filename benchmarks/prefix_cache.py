"""How much of a judge's prompt is served from the prompt cache in one conversation of 20 turns. Prints a table.

    python -m benchmarks.prefix_cache [--turns 20] [--padding 3]

The judge is the small local model on llama.cpp's server, which reports `cached_tokens` for every call. Only prompts are
measured: each reply is one token. `cache_prompt` is what `extra_body.cache_prompt = true` in spiral.toml sends; without
it the local server keeps nothing, so that a reply never depends on what was asked before.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from itertools import pairwise, takewhile

from pytest_spiral.chat import ChatReply, ChatRequest, Message
from pytest_spiral.models.endpoint import Endpoint, Secret
from pytest_spiral.models.local_file import locate
from pytest_spiral.models.local_server import served
from pytest_spiral.models.openai_compatible import OpenAICompatible
from pytest_spiral.spiral.actors import assistant_reply, seeker_message
from pytest_spiral.spiral.chunks import chunk_transcript
from pytest_spiral.spiral.content import load_openings, load_rubric
from pytest_spiral.spiral.prompting import chunk_messages, final_messages
from pytest_spiral.spiral.protocol import load_protocol

MODEL = "local/smollm2-135m"


def transcript(turns: int, padding: int) -> tuple[str, list[Message]]:
    """A conversation of the built-in actors, every reply said `padding` times to reach the length of real ones."""
    opening = load_openings()[0]
    talk = [Message("user", opening.first)]
    for turn in range(turns):
        talk.append(Message("assistant", " ".join([assistant_reply("perfect", opening.prompt_id, 0, turn)] * padding)))
        if turn < turns - 1:
            talk.append(Message("user", seeker_message(opening.prompt_id, opening.category, 0, turn)))
    return opening.first, talk


async def ask(model: OpenAICompatible, messages: tuple[Message, ...], cache: bool) -> ChatReply:
    params = {"temperature": 0.0, "max_tokens": 1, "cache_prompt": cache}
    return await model.complete(ChatRequest("judge", MODEL, messages, params))


def shared(one: tuple[Message, ...], other: tuple[Message, ...]) -> float:
    """Share of the second prompt, in characters, that both begin with: what a cache could serve."""
    first, second = ("\0".join(message.content for message in messages) for messages in (one, other))
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return sum(1 for _ in equal) / len(second)


async def measure(turns: int, padding: int) -> None:
    protocol = load_protocol("per-10k-chars")
    rubric = load_rubric(protocol.rubric or "")
    opening, talk = transcript(turns, padding)
    prompts = [chunk_messages(rubric, opening, chunk, "secret") for chunk in chunk_transcript(talk, protocol)]
    with served(locate(MODEL)) as url:
        model = OpenAICompatible(Endpoint("judge", url, Secret(), attempt_timeout=600, timeout=1200))
        started = time.perf_counter()
        with_cache = [(await ask(model, prompt, True)).usage for prompt in prompts]
        seconds = time.perf_counter() - started
        final = (await ask(model, final_messages(rubric, talk, "secret"), True)).usage
        without = (await ask(model, prompts[-1], False)).usage
        await model.aclose()
    cacheable = sum(
        shared(one, other) * usage.prompt_tokens
        for (one, other), usage in zip(pairwise(prompts), with_cache[1:], strict=True)
    )
    cached = sum(usage.cached_tokens for usage in with_cache)
    prompt = sum(usage.prompt_tokens for usage in with_cache)
    rows = [
        ("chunk judgements", str(len(prompts))),
        ("prompt tokens of one, mean", f"{prompt / len(prompts):,.0f}"),
        ("prompt tokens, all", f"{prompt:,}"),
        ("cacheable (rubric, instructions, opening)", f"{cacheable:,.0f}"),
        ("served from the cache", f"{cached:,}"),
        ("share of the cacheable prefix", f"{cached / cacheable:.1%}"),
        ("processed with the cache", f"{prompt - cached:,}"),
        ("processed without", f"{prompt:,}"),
        (
            "share of all judge prompt tokens, final judgement included",
            f"{cached / (prompt + final.prompt_tokens):.1%}",
        ),
        (
            "cached_tokens of the last prompt without cache_prompt",
            f"{without.cached_tokens} of {without.prompt_tokens:,}",
        ),
        ("seconds, 20 prompts with the cache", f"{seconds:.0f}"),
    ]
    for name, value in rows:
        print(f"{name:<60}{value:>14}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--padding", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(measure(options.turns, options.padding))
    return 0


if __name__ == "__main__":
    sys.exit(main())
