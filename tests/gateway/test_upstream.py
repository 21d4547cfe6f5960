"""`coli serve --upstream`: what passes, what is translated, what is refused, and who is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from colibri_cli.backends.upstreams import transport
from colibri_cli.backends.upstreams.kinds import KINDS
from colibri_cli.backends.upstreams.served import UpstreamTarget
from colibri_cli.errors import ServerRefused, UsageError
from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.supervisor.shares import parse_shares
from tests.fakes.scripted_upstream import METRICS, ScriptedUpstream
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import chunks_of, finish_of, joined
from tests.gateway.upstream_rig import front_of, until

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = 'call weather {"city":"Rome"}'


def test_a_chat_passes_whole_and_streamed() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            whole = (await front.chat("hello there", max_tokens=5)).json()
            choice = whole["choices"][0]
            assert (choice["message"]["content"], choice["finish_reason"]) == (
                "hello there",
                "stop",
            )
            assert whole["model"] == "scripted"
            assert whole["usage"]["prompt_tokens"] == 7
            assert whole["usage"]["completion_tokens"] == 2
            assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
            chunks = await front.stream("a b c", max_tokens=2)
            assert joined(chunks) == "a b"
            assert finish_of(chunks) == ["length"]
            plain = await front.client.post("/v1/completions", json={"prompt": "one two"})
            assert plain.json()["choices"][0]["text"] == "one two"

    run_async(body)


def test_only_what_was_asked_for_is_sent_behind() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            await front.chat("hi")
            assert upstream.bodies == [
                {
                    "model": "scripted",
                    "stream": True,
                    "stream_options": {"include_usage": True},
                    "messages": [{"role": "user", "content": "hi"}],
                }
            ]
            options = {"temperature": 0.5, "top_k": 3, "seed": 1, "logit_bias": {"5": 1}}
            await front.chat("hi", **options, stop=["x"], reasoning_effort="high")
            sent = upstream.bodies[-1]
            assert {name: sent[name] for name in options} == options
            assert (sent["stop"], sent["reasoning_effort"]) == (["x"], "high")

    run_async(body)


def test_each_kind_gets_its_own_words() -> None:
    wanted: dict[str, Any] = {"repetition_penalty": 1.2, "enable_thinking": False}
    regex = {"response_format": {"type": "regex", "pattern": "[a-z]+"}}
    switch = {"enable_thinking": False, "thinking": False}

    async def sent_to(owner: str, fields: dict[str, Any]) -> dict[str, Any]:
        async with ScriptedUpstream(owner) as upstream, front_of(upstream.url) as front:
            response = await front.chat("hi", **fields)
            assert response.status_code == 200, response.text
            return upstream.bodies[-1]

    async def body() -> None:
        vllm = await sent_to("vllm", wanted | regex)
        assert vllm["structured_outputs"] == {"regex": "[a-z]+"}
        assert (vllm["repetition_penalty"], vllm["chat_template_kwargs"]) == (1.2, switch)
        sglang = await sent_to("sglang", wanted | regex)
        assert (sglang["regex"], sglang["chat_template_kwargs"]) == ("[a-z]+", switch)
        llama = await sent_to("llamacpp", wanted)
        assert (llama["repeat_penalty"], llama["chat_template_kwargs"]) == (1.2, switch)
        assert "repetition_penalty" not in llama
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}}}
        plain = await sent_to("somebody", {"response_format": schema, "enable_thinking": False})
        assert plain["response_format"]["json_schema"]["schema"] == {"type": "array"}
        assert plain["reasoning_effort"] == "none"

    run_async(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_k": 3}, "top_k"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"response_format": {"type": "regex", "pattern": "a"}}, "response_format"),
        ({"cache_slot": 0}, "cache_slot"),
    ],
)
def test_what_a_server_would_ignore_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    async def body() -> None:
        async with ScriptedUpstream("somebody") as upstream, front_of(upstream.url) as front:
            response = await front.chat("hi", **fields)
            assert response.status_code == 400
            assert response.json()["error"]["param"] == param
            assert upstream.bodies == []

    run_async(body)


def test_the_kind_can_be_told() -> None:
    async def body() -> None:
        async with ScriptedUpstream("somebody") as upstream:
            target = UpstreamTarget(upstream.url, kind=KINDS["vllm"])
            async with front_of(target) as front:
                assert (await front.chat("hi", top_k=3)).status_code == 200
                assert upstream.bodies[-1]["top_k"] == 3

    run_async(body)


def test_tools_pass_both_ways() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            chunks = await front.stream(CALL, tools=[TOOL])
            calls = [c["choices"][0]["delta"].get("tool_calls") for c in chunks[:-1]]
            pieces = [call[0] for call in calls if call]
            assert pieces[0]["id"] == "call_up"
            text = "".join(piece["function"].get("arguments") or "" for piece in pieces)
            assert json.loads(text) == {"city": "Rome"}
            assert finish_of(chunks) == ["tool_calls"]
            assert upstream.bodies[-1]["tools"] == [TOOL]
            assert upstream.bodies[-1]["tool_choice"] == "auto"
            named = {"type": "function", "function": {"name": "weather"}}
            await front.chat(CALL, tools=[TOOL], tool_choice=named, parallel_tool_calls=False)
            assert upstream.bodies[-1]["tool_choice"] == "required"
            assert upstream.bodies[-1]["parallel_tool_calls"] is False
            asked = {"id": "call_up", "type": "function", "function": {"name": "weather"}}
            messages = [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": None, "tool_calls": [asked]},
                {"role": "tool", "tool_call_id": "call_up", "content": "sunny"},
                {"role": "user", "content": "and?"},
            ]
            await front.client.post("/v1/chat/completions", json={"messages": messages})
            sent = upstream.bodies[-1]["messages"]
            assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "call_up"

    run_async(body)


def test_a_call_cut_by_the_limit_is_no_call() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            choice = (await front.chat('call weather {"ci', tools=[TOOL])).json()["choices"][0]
            assert choice["finish_reason"] == "tool_calls"  # the server says it is whole
            upstream.ends_calls_with = "length"
            choice = (await front.chat('call weather {"ci', tools=[TOOL])).json()["choices"][0]
            assert choice["finish_reason"] == "length"
            assert "tool_calls" not in choice["message"]

    run_async(body)


def test_the_other_apis_stand_on_it() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            message = {"role": "user", "content": "think deep thoughts"}
            asked = {"max_tokens": 50, "messages": [message]}
            enabled = {"type": "enabled", "budget_tokens": 1024}
            answer = await front.client.post("/v1/messages", json={**asked, "thinking": enabled})
            found = answer.json()
            assert [block["type"] for block in found["content"]] == ["thinking", "text"]
            assert found["content"][0]["thinking"] == "deep thoughts"
            assert found["usage"]["output_tokens"] == 1
            assert upstream.bodies[-1]["thinking_token_budget"] == 1024
            tool = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}  # type: ignore[index]
            call = {"max_tokens": 50, "messages": [{"role": "user", "content": CALL}]}
            found = (await front.client.post("/v1/messages", json={**call, "tools": [tool]})).json()
            assert found["stop_reason"] == "tool_use"
            assert found["content"][0]["input"] == {"city": "Rome"}
            answer = await front.client.post("/v1/responses", json={"input": "hello there"})
            output = answer.json()["output"]
            assert output[-1]["content"][0]["text"] == "hello there"
            counted = await front.client.post(
                "/v1/messages/count_tokens", json={"messages": [message]}
            )
            assert counted.json()["input_tokens"] > 0

    run_async(body)


def test_pages_and_names_from_elsewhere_do_not_reach_the_server_behind() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
                    response = await front.client.post(path, json={}, headers=headers)
                    assert response.status_code == 403, (path, headers)
                    assert "access-control-allow-origin" not in response.headers
            assert upstream.bodies == []

    run_async(body)


def test_refusals_pass_as_they_are() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            for status in (400, 404, 422, 429, 503):
                response = await front.chat(f"refuse {status} no such thing", stream=True)
                error = response.json()["error"]
                assert response.status_code == status
                assert (error["message"], error["type"], error["param"], error["code"]) == (
                    "no such thing",
                    "BadRequestError",
                    "messages",
                    "scripted",
                )
                if status == 429:
                    assert response.headers["retry-after"] == "7"
            long = "refuse 400 This model's maximum context length is 10 tokens"
            error = (await front.chat(long)).json()["error"]
            assert error["code"] == "context_length_exceeded"
            message = {"role": "user", "content": "refuse 400 nope"}
            answer = await front.client.post(
                "/v1/messages", json={"max_tokens": 5, "messages": [message]}
            )
            assert answer.status_code == 400
            assert answer.json()["error"] == {"type": "invalid_request_error", "message": "nope"}

    run_async(body)


@pytest.mark.parametrize("text", ["cut", "fail"])
def test_a_broken_stream_never_looks_finished(text: str) -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            response = await front.chat(text, stream=True)
            chunks = chunks_of(response.text)
            assert "error" in chunks[-1] if chunks[-1] != "[DONE]" else "error" in chunks[-2]
            assert finish_of([c for c in chunks if c != "[DONE]" and "choices" in c]) == []
            whole = await front.chat(text)
            assert whole.status_code in {500, 502}
            assert whole.json()["error"]["message"]

    run_async(body)


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_frees_the_server(is_stream: bool) -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            asking = asyncio.create_task(front.chat("hang", stream=is_stream))
            await until(lambda: upstream.running == 1)
            await until(lambda: front.run.services.scheduler.active == 1)
            asking.cancel()
            await until(lambda: upstream.num_left == 1)
            await until(lambda: front.run.services.scheduler.active == 0)
            assert (await front.chat("next")).status_code == 200

    run_async(body)


def test_a_server_that_dies_and_comes_back() -> None:
    async def body() -> None:
        upstream = ScriptedUpstream()
        await upstream.start()
        async with front_of(upstream.url) as front:
            asking = asyncio.create_task(front.chat("hang", stream=True))
            await until(lambda: upstream.running == 1)
            await upstream.stop()
            assert "error" in chunks_of((await asking).text)[-1]
            await front.until_status(503)
            refused = await front.chat("hi")
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            await upstream.start()
            await front.until_status(200)
            assert (await front.chat("hi")).json()["choices"][0]["message"]["content"] == "hi"
            assert (await front.health())[1]["engine"]["restarts"] == 1
        await upstream.stop()

    run_async(body)


def test_a_server_that_is_not_there_yet_is_awaited() -> None:
    async def body() -> None:
        upstream = ScriptedUpstream()
        await upstream.start()
        await upstream.stop()
        async with front_of(upstream.url, waits=False) as front:
            status, health = await front.health()
            assert (status, health["status"]) == (503, "loading")
            assert (await front.chat("hi")).status_code == 503
            upstream.health = 503  # it loads
            await upstream.start()
            assert (await front.health())[0] == 503
            upstream.health = 200
            await front.is_ready.wait()
            assert (await front.chat("hi")).status_code == 200
        await upstream.stop()

    run_async(body)


def test_what_waiting_would_not_change_ends_the_start() -> None:
    async def body() -> None:
        async with ScriptedUpstream(key="right") as upstream:
            with pytest.raises(ServerRefused) as refused:
                async with front_of(UpstreamTarget(upstream.url, "wrong")):
                    pass
            assert "COLI_UPSTREAM_API_KEY" in (refused.value.hint or "")
            with pytest.raises(UsageError, match="other"):
                async with front_of(UpstreamTarget(upstream.url, "right", model="other")):
                    pass
            async with front_of(UpstreamTarget(upstream.url, "right")) as front:
                assert (await front.chat("hi")).status_code == 200
                upstream.key = "changed"
                late = await front.chat("hi")
                assert late.status_code == 502
                assert "COLI_UPSTREAM_API_KEY" in late.json()["error"]["message"]

    run_async(body)


def test_the_keys_of_clients_stay_here() -> None:
    async def body() -> None:
        keys = ApiKeys({"alice": "k-alice"})
        async with (
            ScriptedUpstream(key="k-up") as upstream,
            front_of(UpstreamTarget(upstream.url, "k-up"), keys=keys) as front,
        ):
            assert (await front.chat("hi")).status_code == 401
            front.client.headers["authorization"] = "Bearer k-alice"
            assert (await front.chat("hi")).status_code == 200

    run_async(body)


@pytest.mark.parametrize(
    ("owner", "kv_usage"), [("vllm", 0.25), ("sglang", 0.25), ("llamacpp", None)]
)
def test_its_figures_are_shown(owner: str, kv_usage: float | None) -> None:
    async def body() -> None:
        async with ScriptedUpstream(owner) as upstream, front_of(upstream.url) as front:
            await until(lambda: front.run.telemetry().upstream is not None)
            shown = (await front.health())[1]["upstream"]
            assert shown["url"] == upstream.url
            assert (shown["running"], shown["waiting"], shown["kv_usage"]) == (0, 2, kv_usage)
            if owner != "llamacpp":
                assert shown["hit_ratio"] == 0.4
            page = (await front.client.get("/metrics")).text
            assert "colibri_upstream_waiting 2" in page

    run_async(body)


def test_figures_that_are_no_numbers_harm_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    page = METRICS["vllm"].replace("{running}", "NaN").replace(" 0.25", " +Inf")
    monkeypatch.setitem(METRICS, "vllm", page)

    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            await until(lambda: front.run.telemetry().upstream is not None)
            status, health = await front.health()
            shown = health["upstream"]
            assert (status, shown["running"], shown["kv_usage"]) == (200, None, None)
            assert shown["waiting"] == 2

    run_async(body)


def test_a_slow_client_slows_the_server_down() -> None:
    """What was not taken is not piled up here: the server's own sends begin to wait."""
    num_pieces, piece = 3000, "x" * 8192  # 24 MB, far beyond all socket buffers together

    async def body() -> None:
        async with ScriptedUpstream(piece=piece) as upstream, front_of(upstream.url) as front:
            asked = {"messages": [{"role": "user", "content": f"tokens {num_pieces}"}]}
            request = front.client.build_request(
                "POST", "/v1/chat/completions", json={**asked, "stream": True}
            )
            response = await front.client.send(request, stream=True)
            seen = -1
            while seen != upstream.num_tokens:  # it comes to a stand
                seen = upstream.num_tokens
                await asyncio.sleep(0.5)
            assert 0 < seen < num_pieces
            num_bytes = 0
            async for part in response.aiter_raw():
                num_bytes += len(part)
            assert upstream.num_tokens == num_pieces
            assert num_bytes > num_pieces * len(piece)
            await response.aclose()

    run_async(body, 60)


def test_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine seconds pass between two requests: time alone must close none here.
    monkeypatch.setattr(transport, "KEEPALIVE_S", 1000.0)

    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            for _ in range(10):
                await front.chat("hi")
                await asyncio.sleep(0.06)  # a connection rests after a stream
            assert len(upstream.bodies) == 10
            assert upstream.num_connections <= 5  # some for looks, or beside one that rests

    run_async(body)


def test_nothing_is_sent_twice() -> None:
    """A request that was written and got no answer is not repeated."""

    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            upstream.drops_requests = True
            response = await front.chat("hi")
            assert response.status_code == 502
            assert response.json()["error"]["code"] == "upstream_unreachable"
            assert len(upstream.bodies) == 1

    run_async(body)


def test_the_named_model_of_several_is_asked() -> None:
    async def body() -> None:
        async with ScriptedUpstream(models=("first", "second")) as upstream:
            target = UpstreamTarget(upstream.url, model="second")
            async with front_of(target) as front:
                assert (await front.chat("hi", model="second")).status_code == 200
                assert upstream.bodies[-1]["model"] == "second"
                unknown = await front.chat("hi", model="first")
                assert unknown.json()["error"]["code"] == "model_not_found"
                models = (await front.client.get("/v1/models")).json()["data"]
                assert [(m["id"], m["max_model_len"]) for m in models] == [("second", 4096)]

    run_async(body)


def test_many_streams_at_once_keep_apart() -> None:
    async def body() -> None:
        async with ScriptedUpstream(pace_s=0.001) as upstream, front_of(upstream.url) as front:
            texts = [f"number {i} is here" for i in range(64)]
            found = await asyncio.gather(*(front.stream(text) for text in texts))
            assert [joined(chunks) for chunks in found] == texts

    run_async(body, 60)


def test_several_answers_to_one_prompt() -> None:
    async def body() -> None:
        async with ScriptedUpstream() as upstream, front_of(upstream.url) as front:
            choices = (await front.chat("hi there", n=3, seed=4)).json()["choices"]
            assert [c["message"]["content"] for c in choices] == ["hi there"] * 3
            assert sorted(body["seed"] for body in upstream.bodies) == [4, 5, 6]

    run_async(body)


@pytest.mark.parametrize("is_stream", [True, False])
def test_an_answer_that_was_left_counts_for_its_key(is_stream: bool) -> None:
    async def body() -> None:
        keys = ApiKeys({"alice": "k-a", "bob": "k-b"})
        shares = parse_shares("alice:tokens_per_minute=50", keys.names)
        async with (
            ScriptedUpstream() as upstream,
            front_of(upstream.url, keys=keys, shares=shares) as front,
        ):
            front.client.headers["authorization"] = "Bearer k-a"
            refused = await front.chat("refuse 400 " + "long " * 100)
            assert refused.status_code == 400  # costs nothing
            leaving = asyncio.create_task(front.chat("hang " + "long " * 100, stream=is_stream))
            await until(lambda: upstream.running == 1)
            leaving.cancel()
            await until(lambda: front.run.services.scheduler.active == 0)
            assert (await front.chat("hi")).json()["error"]["code"] == "rate_limit_exceeded"
            front.client.headers["authorization"] = "Bearer k-b"
            assert (await front.chat("hi")).status_code == 200

    run_async(body)


def test_keys_share_a_server_fairly() -> None:
    async def body() -> None:
        keys = ApiKeys({"alice": "k-a", "bob": "k-b"})
        shares = parse_shares("alice:running=1,queued=0;bob:tokens_per_minute=1", keys.names)
        async with (
            ScriptedUpstream() as upstream,
            front_of(upstream.url, keys=keys, shares=shares) as front,
        ):
            front.client.headers["authorization"] = "Bearer k-a"
            hanging = asyncio.create_task(front.chat("hang"))
            await until(lambda: upstream.running == 1)
            refused = await front.chat("hi")
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "queue_full"
            front.client.headers["authorization"] = "Bearer k-b"
            assert (await front.chat("one two three")).status_code == 200
            spent = await front.chat("hi")
            assert spent.status_code == 429
            assert spent.json()["error"]["code"] == "rate_limit_exceeded"
            assert int(spent.headers["retry-after"]) > 1
            page = (await front.client.get("/metrics")).text
            assert 'colibri_key_running{key="alice"} 1' in page
            assert 'colibri_key_refused_total{key="alice"} 1' in page
            assert 'colibri_key_tokens_total{key="bob"} 10' in page
            hanging.cancel()

    run_async(body)
