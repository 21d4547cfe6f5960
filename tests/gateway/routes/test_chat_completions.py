"""Chat completions from socket to engine and back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from colibri_cli.supervisor.lifecycle import RestartPolicy
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import (
    GLM_MODEL,
    Gateway,
    chunks_of,
    finish_of,
    joined,
    launch_of,
    long_silence,
    running,
    until,
)


def message_of(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def test_a_chat_in_both_modes(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("[[pieces Hé|llo]]Hi", cache_slot=1)
            assert response.status_code == 200
            assert response.headers["x-colibri-queue-wait-ms"] == "0"
            assert response.headers["x-request-id"].startswith("req_")
            answer = response.json()
            assert answer["object"] == "chat.completion"
            assert answer["model"] == "test-model"
            assert answer["choices"][0]["message"]["content"] == "Héllo"
            assert answer["choices"][0]["finish_reason"] == "stop"
            usage = answer["usage"]
            assert usage["completion_tokens"] == 2
            assert usage["total_tokens"] == usage["prompt_tokens"] + 2
            assert usage["prompt_tokens_details"]["cached_tokens"] > 0
            assert gateway.submitted[0].slot == 1
            assert gateway.prompt.startswith("<|im_start|>user\n[[pieces")
            assert gateway.prompt.endswith("<|im_start|>assistant\n")
            chunks = await gateway.stream(
                "[[pieces Hé|llo]]Hi", stream_options={"include_usage": True}
            )
            assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert joined(chunks) == "Héllo"
            assert finish_of(chunks) == ["stop"]
            assert chunks[-2]["usage"] == usage
            assert chunks[-1] == "[DONE]"

    run_async(body)


def test_the_head_of_a_stream(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("Hi", stream=True)
            assert response.headers["cache-control"] == "no-cache"
            assert response.headers["x-accel-buffering"] == "no"
            assert response.headers["x-colibri-queue-wait-ms"] == "0"
            assert response.headers["x-request-id"].startswith("req_")

    run_async(body)


@pytest.mark.parametrize(
    ("reply", "stop", "fields", "content"),
    [
        ("[[pieces Hé|llo]]", "éll", {}, "H"),
        ("[[pieces Hé|llo]]", "H", {"x_colibri_ignore_leading_stop": True}, "éllo"),
        ("[[pieces L M N| O| P| Q| R]]", ["O P Q"], {}, "L M N "),
        ("[[pieces STOP|x]]", "STOP", {}, ""),
    ],
)
def test_stop_texts(
    tmp_path: Path, reply: str, stop: object, fields: dict[str, Any], content: str
) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            choice = await gateway.answer(reply, stop=stop, **fields)
            assert (choice["message"]["content"], choice["finish_reason"]) == (content, "stop")
            chunks = await gateway.stream(reply, stop=stop, **fields)
            assert joined(chunks) == content
            assert finish_of(chunks) == ["stop"]

    run_async(body)


def test_the_limit_of_the_server_holds(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), max_tokens=4) as gateway:
            for fields in ({"max_tokens": 100_000}, {}, {"max_completion_tokens": 9}):
                choice = await gateway.answer("[[endless]]", **fields)
                assert choice["finish_reason"] == "length"
                assert choice["message"]["content"] == "word0 word1 word2 word3 "
            assert finish_of(await gateway.stream("[[endless]]")) == ["length"]
            choice = await gateway.answer("[[endless]]", max_completion_tokens=2, max_tokens=3)
            assert choice["message"]["content"] == "word0 word1 "

    run_async(body)


def test_the_finish_reason_tells_the_truth(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            for limit, reason in ((4, "length"), (6, "stop")):
                choice = await gateway.answer("[[tokens 5]]", max_tokens=limit)
                assert choice["finish_reason"] == reason
                chunks = await gateway.stream("[[tokens 5]]", max_tokens=limit)
                assert finish_of(chunks) == [reason]

    run_async(body)


def test_a_short_prompt_always_fits(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, context_length=128), max_tokens=128) as gateway:
            response = await gateway.chat("[[endless]]hi")
            assert response.status_code == 200
            assert response.json()["usage"]["total_tokens"] <= 128

    run_async(body)


def test_a_long_prompt_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, context_length=128)) as gateway:
            for stream in (False, True):
                response = await gateway.chat("word " * 500, stream=stream)
                assert response.status_code == 400
                error = response.json()["error"]
                assert error["code"] == "context_length_exceeded"
                assert error["param"] == "messages"
                assert error["type"] == "invalid_request_error"
                assert "128" in error["message"]
                assert "x-colibri-queue-wait-ms" not in response.headers

    run_async(body)


@pytest.mark.parametrize("detail", ["5000 4094", "prompt_tokens=5000 capacity=4094", ""])
def test_what_the_engine_says_about_the_context(tmp_path: Path, detail: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, is_baseline=True)) as gateway:
            for stream in (False, True):
                response = await gateway.chat(f"[[error CONTEXT_EXCEEDED {detail}]]", stream=stream)
                assert response.status_code == 400
                error = response.json()["error"]
                assert error["code"] == "context_length_exceeded"
                if detail:
                    assert "5000" in error["message"]
                    assert "4094" in error["message"]

    run_async(body)


def test_a_prompt_without_tokens_is_the_clients_fault(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            for stream in (False, True):
                response = await gateway.chat("[[error EMPTY_PROMPT]]", stream=stream)
                assert response.status_code == 400
                error = response.json()["error"]
                assert error["type"] == "invalid_request_error"
                assert "prompt is empty" in error["message"]

    run_async(body)


def test_characters_cut_over_tokens(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), max_tokens=64) as gateway:
            text = "Grüße, 世界 👋"
            assert (await gateway.answer("[[utf8]]"))["message"]["content"] == text
            chunks = await gateway.stream("[[utf8]]")
            assert joined(chunks) == text
            assert all("\ufffd" not in json.dumps(chunk) for chunk in chunks)

    run_async(body)


def test_a_limit_inside_a_character_leaves_whole_ones(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), max_tokens=64) as gateway:
            limit = len("Grüße, 世界 ".encode()) + 2  # of the four bytes that follow
            choice = await gateway.answer("[[utf8]]", max_tokens=limit)
            assert choice["message"]["content"].removesuffix("\ufffd") == "Grüße, 世界 "
            assert choice["finish_reason"] == "length"
            chunks = await gateway.stream("[[utf8]]", max_tokens=limit)
            assert joined(chunks) == choice["message"]["content"]
            assert finish_of(chunks) == ["length"]

    run_async(body)


@pytest.mark.parametrize("script", ["[[no-accept]]", "[[unknown]]", "[[silent 0.3]]"])
def test_engines_with_other_habits(tmp_path: Path, script: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            for is_baseline_text in (script, f"{script}[[pieces a|b]]"):
                choice = await gateway.answer(is_baseline_text)
                assert choice["finish_reason"] == "stop"
                chunks = await gateway.stream(is_baseline_text)
                assert joined(chunks) == choice["message"]["content"]
                assert chunks[-1] == "[DONE]"

    run_async(body)


def test_silence_is_filled_and_adds_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), keepalive_s=0.05) as gateway:
            sign = '"reasoning_content":""'
            chunks = chunks_of(
                await long_silence(gateway, "/v1/chat/completions", message_of, sign, 3)
            )
            assert joined(chunks) == "ok"
            assert joined(chunks, "reasoning_content") == ""
            assert finish_of(chunks) == ["stop"]

    run_async(body)


def test_a_sign_of_life_may_be_made_visible(tmp_path: Path) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path)
        async with running(launch, keepalive_s=0.05, has_visible_keepalive=True) as gateway:
            sign = '"reasoning_content":"."'
            chunks = chunks_of(
                await long_silence(gateway, "/v1/chat/completions", message_of, sign, 2)
            )
            assert joined(chunks) == "ok"
            assert set(joined(chunks, "reasoning_content")) == {"."}

    run_async(body)


def test_progress_is_a_comment_in_the_stream(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("Hi there", stream=True)
            comments = [line for line in response.text.split("\n") if line.startswith(":")]
            assert any("prefill" in line for line in comments)

    run_async(body)


def test_an_engine_that_dies_before_the_first_piece(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("[[die]]")
            assert response.status_code >= 500
            assert response.json()["error"]["type"] == "server_error"
            assert (await gateway.answer("[[reply alive]]"))["message"]["content"] == "alive"

    run_async(body)


def test_when_an_engine_stays_away_for_long_everybody_is_told_for_how_long(tmp_path: Path) -> None:
    async def body() -> None:
        policy = RestartPolicy(first_delay_s=100, max_delay_s=100, patience_s=1)
        async with running(launch_of(tmp_path), policy=policy) as gateway:
            for text in ("[[die]]", "hello"):
                response = await gateway.chat(text)
                assert response.status_code == 503
                assert 90 <= int(response.headers["retry-after"]) <= 130
            assert (await gateway.client.get("/health")).status_code == 503

    run_async(body)


def test_who_waits_in_the_queue_outlives_the_engine(tmp_path: Path) -> None:
    async def body() -> None:
        policy = RestartPolicy(first_delay_s=0.05, patience_s=10)
        async with running(launch_of(tmp_path, num_slots=1), kv_slots=1, policy=policy) as gateway:
            dying = asyncio.create_task(gateway.chat("[[silent 0.5]] [[die]]"))
            await until(lambda: gateway.services.scheduler.active == 1)
            answers = [asyncio.create_task(gateway.chat("hello")) for _ in range(3)]
            assert (await dying).status_code == 503
            assert [(await answer).status_code for answer in answers] == [200, 200, 200]

    run_async(body)


@pytest.mark.parametrize("script", ["[[die 2]]", "[[exit 3 2]]", "[[garbage 2]]"])
def test_an_engine_that_fails_in_mid_stream(tmp_path: Path, script: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            chunks = await gateway.stream(f"{script}[[tokens 9]]")
            assert joined([c for c in chunks if "choices" in c]) == "word0 word1 "
            assert chunks[-1]["error"]["message"]
            assert chunks[-1]["error"]["type"] == "server_error"
            assert finish_of([c for c in chunks if "choices" in c]) == []
            response = await gateway.chat(f"{script}[[tokens 9]]")
            assert response.status_code >= 500
            assert response.json()["error"]["message"]
            assert (await gateway.answer("[[reply alive]]"))["message"]["content"] == "alive"

    run_async(body)


def test_an_error_line_in_mid_stream(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            script = "[[tokens 2]][[late-error INTERNAL secret detail]]"
            chunks = await gateway.stream(script)
            assert chunks[-1]["error"]["code"] == "engine_error"
            assert "secret" not in json.dumps(chunks)
            response = await gateway.chat(script)
            assert response.status_code == 500
            assert "secret" not in response.text

    run_async(body)


def test_two_answers_at_once_do_not_mix(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            texts = [f"[[slow 0.02]][[pieces {name}1|{name}2|{name}3]]" for name in "ab"]
            answers = await asyncio.gather(
                gateway.answer(texts[0], cache_slot=0), gateway.stream(texts[1], cache_slot=1)
            )
            assert answers[0]["message"]["content"] == "a1a2a3"
            assert joined(answers[1]) == "b1b2b3"
            assert [request.slot for request in gateway.submitted] == [0, 1]

    run_async(body)


def test_several_choices(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("[[pieces a|b]]", n=2, seed=7)
            choices = response.json()["choices"]
            assert [choice["index"] for choice in choices] == [0, 1]
            assert [choice["message"]["content"] for choice in choices] == ["ab", "ab"]
            assert response.json()["usage"]["completion_tokens"] == 4
            assert [request.options.seed for request in gateway.submitted] == [7, 8]
            chunks = await gateway.stream("[[pieces a|b]]", n=2)
            ends = {
                chunk["choices"][0]["index"]
                for chunk in chunks[:-1]
                if chunk["choices"][0]["finish_reason"] == "stop"
            }
            assert ends == {0, 1}

    run_async(body)


def test_log_probabilities_in_both_modes(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}
            choice = await gateway.answer("[[pieces Hé|llo]]", **fields)
            content = choice["logprobs"]["content"]
            assert [token["token"] for token in content] == ["Hé", "llo"]
            assert [bytes(token["bytes"]).decode() for token in content] == ["Hé", "llo"]
            assert all(token["logprob"] == -0.25 for token in content)
            assert all(len(token["top_logprobs"]) == 2 for token in content)
            chunks = await gateway.stream("[[pieces Hé|llo]]", **fields)
            parts = [c["choices"][0]["logprobs"] for c in chunks[:-1]]
            assert [t for part in parts if part for t in part["content"]] == content

    run_async(body)


def test_options_reach_the_engine(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            choice = await gateway.answer(
                "[[options]]",
                temperature=0.25,
                top_p=0.5,
                top_k=40,
                min_p=0.1,
                seed=7,
                presence_penalty=0.5,
                frequency_penalty=1,
                repetition_penalty=1.1,
                logit_bias={"5": -100},
            )
            assert json.loads(choice["message"]["content"]) == {
                "max_tokens": 16,
                "temperature": 0.25,
                "top_p": 0.5,
                "top_k": 40,
                "min_p": 0.1,
                "seed": 7,
                "presence_penalty": 0.5,
                "frequency_penalty": 1.0,
                "repetition_penalty": 1.1,
                "logit_bias": {"5": -100.0},
            }

    run_async(body)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"stop": []}, 400, "stop"),
        ({"temperature": -1}, 400, "temperature"),
        ({"cache_slot": 2}, 400, "cache_slot"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, None),
        ({"model": "gpt-4"}, 404, "model"),
        ({"tools": 5}, 400, "tools"),
    ],
)
def test_bad_requests_never_reach_the_engine(
    tmp_path: Path, fields: dict[str, Any], status: int, param: str | None
) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("Hi", **fields)
            assert response.status_code == status
            error = response.json()["error"]
            assert error["param"] == (param or "messages.0.content.0")
            assert not gateway.submitted

    run_async(body)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"messages":NaN}', b"\xff", b'{"a":' + b"[" * 50_000]
)
def test_bodies_that_are_no_object(tmp_path: Path, raw: bytes) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.client.post("/v1/chat/completions", content=raw)
            assert response.status_code == 400
            assert response.json()["error"]["type"] == "invalid_request_error"

    run_async(body)


def test_an_engine_of_the_baseline(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, is_baseline=True)) as gateway:
            await glm_prompts(gateway)
            for name, value in (
                ("seed", 7),
                ("logprobs", True),
                ("top_k", 5),
                ("frequency_penalty", 0.5),
                ("logit_bias", {"1": 1}),
            ):
                response = await gateway.chat("Hi", **{name: value})
                error = response.json()["error"]
                assert (response.status_code, error["param"]) == (400, name)
                assert error["code"] == "unsupported_parameter"
            response_format = {"type": "json_schema", "json_schema": {"schema": {"a": 1}}}
            await gateway.answer("Hi", response_format=response_format)
            assert gateway.submitted[-1].draft_grammar == '{"a":1}'
            await gateway.answer("Hi", response_format={"type": "json_object"})
            assert "root ::=" in (gateway.submitted[-1].draft_grammar or "")

    run_async(body)


async def glm_prompts(gateway: Gateway) -> None:
    await gateway.answer("Hi")
    assert gateway.prompt == "[gMASK]<sop><|user|>Hi<|assistant|><think></think>"
    await gateway.answer("Hi", reasoning_effort="xhigh")
    expected = "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>Hi<|assistant|><think>"
    assert gateway.prompt == expected


def test_glm_prompts_with_an_engine_that_takes_segments(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            await glm_prompts(gateway)

    run_async(body)


def test_reasoning_in_both_modes(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            text = "[[pieces I think |42|</thi|nk>|The answer |is 42]]"
            choice = await gateway.answer(text, enable_thinking=True)
            assert choice["message"]["reasoning_content"] == "I think 42"
            assert choice["message"]["content"] == "The answer is 42"
            chunks = await gateway.stream(text, enable_thinking=True)
            assert joined(chunks, "reasoning_content") == "I think 42"
            assert joined(chunks) == "The answer is 42"
            plain = await gateway.answer("[[pieces Just |the answer]]")
            assert plain["message"]["content"] == "Just the answer"
            assert "reasoning_content" not in plain["message"]

    run_async(body)


def test_the_end_of_reasoning_may_be_cut_anywhere(tmp_path: Path) -> None:
    marker = "</think>"
    cuts = [f"{marker[:n]}|{marker[n:]}" for n in range(1, len(marker))]

    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            for cut in (*cuts, "|".join(marker)):
                chunks = await gateway.stream(f"[[pieces a{cut}b]]", enable_thinking=True)
                assert joined(chunks, "reasoning_content") == "a", cut
                assert joined(chunks) == "b", cut

    run_async(body, 60)


def test_reasoning_that_never_ends_is_not_the_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            fields: dict[str, Any] = {"enable_thinking": True, "max_tokens": 3}
            response = await gateway.chat("[[endless]]", **fields)
            choice = response.json()["choices"][0]
            assert choice["message"]["reasoning_content"] == "word0 word1 word2 "
            assert choice["message"]["content"] == ""
            assert choice["finish_reason"] == "length"
            chunks = await gateway.stream("[[endless]]", **fields)
            assert (joined(chunks), finish_of(chunks)) == ("", ["length"])

    run_async(body)


def test_a_model_without_reasoning_just_answers(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            choice = await gateway.answer("[[reply OK]]", reasoning_effort="high")
            assert choice["message"]["content"] == "OK"
            assert "reasoning_content" not in choice["message"]
            assert joined(await gateway.stream("[[reply OK]]", reasoning_effort="high")) == "OK"

    run_async(body)


def test_an_engine_that_accepts_twice_fails_that_request_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("[[twice]]")
            assert response.status_code >= 500
            assert (await gateway.answer("[[reply alive]]"))["message"]["content"] == "alive"

    run_async(body)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_slot(tmp_path: Path, stream: bool) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path)
        async with running(launch, kv_slots=1, max_queue=0, max_tokens=100_000) as gateway:
            text = "[[slow 0.01]][[endless]]"
            asking = asyncio.create_task(gateway.chat(text, stream=stream))
            await until(lambda: gateway.services.scheduler.active == 1)
            assert (await gateway.chat("Hi")).status_code == 429
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: gateway.services.scheduler.active == 0)
            assert (await gateway.answer("[[reply next]]"))["message"]["content"] == "next"
            assert gateway.services.scheduler.counters.aborted == 1

    run_async(body)


def test_the_beginning_of_an_answer_is_continued(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            messages = [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "The capital is"},
            ]
            body = {"messages": messages}
            response = await gateway.client.post("/v1/chat/completions", json=body)
            assert response.status_code == 200
            assert gateway.prompt.endswith("<|im_start|>assistant\nThe capital is")

    run_async(body)


def test_control_words_in_messages_are_only_text(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            await gateway.answer("a<|im_end|>b")
            texts = [s.text for s in gateway.submitted[-1].segments if s.kind.value == "T"]
            assert "a<|im_end|>b" in texts

    run_async(body)


def test_another_name_for_the_model_is_answered_under_the_served_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), aliases=("small",)) as gateway:
            response = await gateway.chat("Hi", model="small")
            assert response.json()["model"] == "test-model"

    run_async(body)
