"""Every message beside its exact bytes, in the direction it travels."""

from __future__ import annotations

from colibri_protocol import messages as m
from colibri_protocol.messages import Segment, SegmentKind

CONTROL = SegmentKind.CONTROL
TEXT = SegmentKind.TEXT

GATEWAY: list[tuple[m.GatewayMessage, bytes]] = [
    (m.Submit(7, 1, b"hello", 128, 0.7, 0.9), b"SUBMIT 7 1 5 128 0.7 0.9\nhello\n"),
    (m.Submit(8, 0, b"", 1, 0.0, 1.0), b"SUBMIT 8 0 0 1 0 1\n\n"),
    (
        m.Submit(9, 15, "Grüße\n".encode(), 16, 1e-6, 0.25, b"root ::= x"),
        b"SUBMIT 9 15 8 16 1e-06 0.25 10\nGr\xc3\xbc\xc3\x9fe\nroot ::= x\n",
    ),
    (
        m.SubmitExtended(
            10,
            -1,
            m.RequestOptions(max_tokens=5, temperature=0.0, stop_ids=(2, 3), logit_bias={4: -1}),
            (Segment(CONTROL, "<|user|>"), Segment(TEXT, "a\nb"), Segment(TEXT, "")),
        ),
        (
            b'SUBMITX 10 -1 75 23\n{"max_tokens":5,"temperature":0.0,"logit_bias":{"4":-1.0},'
            b'"stop_ids":[2,3]}C 8\n<|user|>T 3\na\nbT 0\n\n'
        ),
    ),
    (
        m.SubmitExtended(
            11,
            0,
            m.RequestOptions(
                top_p=0.5,
                top_k=40,
                min_p=0.05,
                repetition_penalty=1.1,
                frequency_penalty=-2,
                presence_penalty=2,
                seed=2**64 - 1,
                ignore_eos=True,
                logprobs=0,
                grammar=m.Grammar("regex", "é+"),
                draft=0,
            ),
            (),
        ),
        (
            b'SUBMITX 11 0 219 0\n{"top_p":0.5,"top_k":40,"min_p":0.05,"repetition_penalty":1.1,'
            b'"frequency_penalty":-2.0,"presence_penalty":2.0,"seed":18446744073709551615,'
            b'"ignore_eos":true,"logprobs":0,"grammar":{"kind":"regex","text":"\xc3\xa9+"},'
            b'"draft":0}\n'
        ),
    ),
    (m.Stop(12), b"STOP 12\n"),
    (m.Cancel(13), b"CANCEL 13\n"),
    (m.Count(14, (Segment(TEXT, "hi"),)), b"COUNT 14 6\nT 2\nhi\n"),
    (m.StatsQuery(15), b"STATS 15\n"),
    (m.Ping(0), b"PING 0\n"),
]

HANDSHAKE: list[tuple[m.EngineMessage, bytes]] = [
    (m.Ready(), b"\x01\x01READY\x01\x01\n"),
    (m.Caps(frozenset({"options", "count"})), b"CAPS count options\n"),
    (m.EngineStat(12.34), b"STAT 0 0.00 0.0 12.34\n"),
]

START_FAILURE: tuple[m.EngineMessage, bytes] = (
    m.StartFailed("checkpoint_error", "no such file", "pull it", {"path": "/m", "tensor": None}),
    (
        b"\x01\x01FAILED\x01\x01 107\n"
        b'{"code":"checkpoint_error","message":"no such file","hint":"pull it",'
        b'"details":{"path":"/m","tensor":null}}\n'
    ),
)

ENGINE: list[tuple[m.EngineMessage, bytes]] = [
    (m.Accepted(7, 42), b"ACCEPT 7 42\n"),
    (m.Accepted(8, 42, 10, 3), b"ACCEPT 8 42 10 3\n"),
    (m.TextDelta(7, b"Hi"), b"DATA 7 2\nHi\n"),
    (m.TextDelta(7, b"\n\xf0\x9f"), b"DATA 7 3\n\n\xf0\x9f\n"),
    (m.TextDelta(7, b""), b"DATA 7 0\n\n"),
    (
        m.TokenLogprobs(7, 5, -0.25, b"\xf0\x9f", (m.TokenAlternative(5, -0.25, b"\xf0\x9f"),)),
        b'TOKEN 7 64\n{"id":5,"logprob":-0.25,"bytes":"f09f","top":[[5,-0.25,"f09f"]]}\n',
    ),
    (m.Finished(7, 2, 3.5, 44.0, 1.2, 7, limited=True), b"DONE 7 STAT 2 3.50 44.0 1.20 7 1 0\n"),
    (
        m.Finished(8, 2, 3.5, 44.0, 1.2, 7, False, 5, m.FinishReason.STOP, 2),
        b"DONE 8 STAT 2 3.50 44.0 1.20 7 0 5 stop 2\n",
    ),
    (
        m.Finished(9, 0, 0.0, 0.0, 0.0, 1, False, 0, m.FinishReason.STOPPED, -1),
        b"DONE 9 STAT 0 0.00 0.0 0.00 1 0 0 stopped -1\n",
    ),
    (m.RequestFailed(7, "CONTEXT_EXCEEDED", "8321 4094"), b"ERROR 7 CONTEXT_EXCEEDED 8321 4094\n"),
    (m.RequestFailed(7, "CANCELLED"), b"ERROR 7 CANCELLED\n"),
    (m.RequestFailed(0, "", "out of luck"), b"ERROR 0 out of luck\n"),
    (m.Progress(7, 256, 1000), b"PROGRESS 7 256 1000\n"),
    (m.Counted(14, 3), b"COUNTED 14 3\n"),
    (m.StatsReport(15, {"steps": 3, "name": "é"}), b'STATS 15 23\n{"steps":3,"name":"\xc3\xa9"}\n'),
    (m.ModelInfo({"id": "demo"}), b'MODEL 13\n{"id":"demo"}\n'),
    (m.Pong(3), b"PONG 3\n"),
    (
        m.HardwareInfo(16, 128.0, 100.0, 1, 139.0, "Some CPU", "CUDA device x1"),
        b"HWINFO 16 128.0 100.0 1 139.0 Some CPU|CUDA device x1\n",
    ),
    (m.TierCounts(10, 20, 70, 1.5, 3.25), b"TIERS 10 20 70 1.50 3.25\n"),
    (m.ExpertMap(2, 2, bytes.fromhex("81410005")), b"EMAP 2 2 81410005\n"),
    (m.ExpertMap(0, 0, b""), b"EMAP 0 0 \n"),
    (m.ExpertHits(2, 2, b"\x05"), b"HITS 2 2 05\n"),
    (
        m.TurnProfile(3.125, 20, 31, 0.75, 0.25, 1.125, 0.875, 0.125, 33),
        b"PROF 3.125 20 31 0.750 0.250 1.125 0.875 0.125 33\n",
    ),
    (
        m.RequestTimings(7, 2.5, 0.4, 0.1, 0.9, 0.6, 0.1, 0.2),
        b"PERF 7 2.5 0.4 0.1 0.9 0.6 0.1 0.2\n",
    ),
    (m.RoutingEntropy((3.1, 4.2)), b"ENTROPY 3.1 4.2\n"),
    (
        m.GpuUsage(((40.1, 80.0, 900), (39.8, 80.0, 880))),
        b"GPUS 2 40.1 80 900 39.8 80 880\n",
    ),
    (m.TokenCandidates(7, ((-0.1, b"Hi"), (-2.3, b""))), b"TOPK 7 2 -0.1 4869 -2.3 \n"),
    (m.ExpertMoved(12, 33, 0, 1), b"REPIN 12 33 0 1\n"),
]
