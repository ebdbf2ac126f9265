from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
from pathlib import Path

import grpc
import psutil
import pytest
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.rpc.sockets import ListenFailedError, claimed
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from tests.rpc.support import BOUND_S, call, refused, text_of
from tests.sidecar import Sidecar, running_sidecar

OUTLASTS_S = 5.0
"""How long a call runs on beside requests that are answered meanwhile, the first one by a process that starts."""


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


async def test_the_socket_is_its_owners_alone(sidecar: Sidecar) -> None:
    path = Path(sidecar.target.removeprefix("unix:"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_tcp_is_served_beside_the_unix_socket(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
        assert sidecar.targets[1] != "127.0.0.1:0"
        async with grpc.aio.insecure_channel(sidecar.targets[1]) as channel:
            result = (await ToolServiceStub(channel).CallTool(call("echo", {"text": "tcp"}), timeout=BOUND_S)).result
            assert text_of(result) == "tcp"


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_names_the_services_and_describes_each(channel: grpc.aio.Channel, version: str) -> None:
    ask = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    stream = ask(timeout=BOUND_S)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    named = {service.name for service in (await stream.read()).list_services_response.service}
    reflections = {f"grpc.reflection.{each}.ServerReflection" for each in ("v1", "v1alpha")}
    assert named == {
        "fumehood.v1.ToolService",
        "fumehood.v1.PluginService",
        "fumehood.v1.JournalService",
        "fumehood.v1.ApprovalService",
        "fumehood.v1.HookService",
        "fumehood.v1.OrchestrationService",
        "fumehood.v1.McpService",
        "grpc.health.v1.Health",
        *reflections,
    }
    for name in sorted(named):
        await stream.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
        (described, *_) = (await stream.read()).file_descriptor_response.file_descriptor_proto
        file = FileDescriptorProto.FromString(described)
        assert name in {f"{file.package}.{service.name}" for service in file.service}
    await stream.done_writing()


async def test_sigterm_lets_calls_finish_and_refuses_new_ones(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder]) as sidecar:
        async with sidecar.channel() as channel:
            tools, health = ToolServiceStub(channel), health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            request = call("wait", {"seconds": OUTLASTS_S})
            stream = tools.StreamTool(pb.StreamToolRequest(call=request), timeout=BOUND_S)
            async for event in stream:
                if event.HasField("update"):
                    break
            sidecar.signal(signal.SIGTERM)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            late = tools.CallTool(call("echo", {"text": "late"}), timeout=BOUND_S)
            assert await refused(late) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
            events = [event async for event in stream]
            assert text_of(events[-1].finished) == "waited"
        assert await asyncio.to_thread(sidecar.wait) == 0
        assert not Path(sidecar.target.removeprefix("unix:")).exists()
        stopped = sidecar.log()[-1]
        assert stopped["event"] == "stopped"
        assert stopped["loop_over_20_ms"] >= stopped["loop_over_100_ms"] >= 0
        assert (stopped["loop_longest_ms"] >= 20) == (stopped["loop_over_20_ms"] > 0)


async def test_calls_that_outlast_the_drain_are_cancelled_and_answered(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server="drain_s = 0.2") as sidecar:
        async with sidecar.channel() as channel:
            stream = ToolServiceStub(channel).StreamTool(pb.StreamToolRequest(call=call("wait", {"seconds": 60})))
            async for event in stream:
                if event.HasField("update"):
                    break
            workers = children(sidecar.process.pid)
            assert workers
            sidecar.signal(signal.SIGTERM)
            events = [event async for event in stream]
            assert events[-1].finished.error.code == "CANCELLED_SIGNAL"
            assert events[-1].finished.error.retryable
        assert await asyncio.to_thread(sidecar.wait) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


async def test_sigusr_ends_nothing_and_sigquit_ends_a_session_once_its_calls_are_answered(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder]) as sidecar:
        async with sidecar.channel() as channel:
            session = ToolServiceStub(channel).Session()
            await session.write(pb.SessionRequest(call=call("wait", {"seconds": OUTLASTS_S}), updates=True))
            assert (await session.read()).HasField("update")
            sent = (signal.SIGUSR1, signal.SIGUSR2)
            for number in sent:
                sidecar.signal(number)
            await session.write(pb.SessionRequest(call=call("echo", {"text": "still here"})))
            assert text_of((await session.read()).finished) == "still here"
            sidecar.signal(signal.SIGQUIT)
            assert text_of((await session.read()).finished) == "waited"
            assert await refused(session.read()) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert await asyncio.to_thread(sidecar.wait) == 0
        ignored = [line["signal"] for line in sidecar.log() if line["event"] == "signal_ignored"]
        assert sorted(ignored) == sorted(number.name for number in sent)


async def test_a_second_signal_ends_it_at_once_and_no_process_stays(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server="drain_s = 60") as sidecar:
        async with sidecar.channel() as channel:
            stream = ToolServiceStub(channel).StreamTool(pb.StreamToolRequest(call=call("wait", {"seconds": 60})))
            async for event in stream:
                if event.HasField("update"):
                    break
            workers = [os.pidfd_open(pid) for pid in children(sidecar.process.pid)]
            health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            await health.read()
            sidecar.signal(signal.SIGINT)
            assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            sidecar.signal(signal.SIGINT)
            assert await asyncio.to_thread(sidecar.wait) == -signal.SIGINT
        for pidfd in workers:
            gone = asyncio.Event()
            asyncio.get_running_loop().add_reader(pidfd, gone.set)
            async with asyncio.timeout(BOUND_S):
                await gone.wait()
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)


async def test_calls_over_the_sidecars_cap_are_refused(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server="max_concurrent_calls = 2") as sidecar:
        async with sidecar.channel() as channel:
            tools = ToolServiceStub(channel)
            sessions = [tools.Session(timeout=BOUND_S) for _ in range(2)]
            for index, session in enumerate(sessions):
                request = call("wait", {"seconds": 60}, call_id=f"c{index}")
                await session.write(pb.SessionRequest(call=request, updates=True))
                assert (await session.read()).update.message == "begun"
            one_more = tools.CallTool(call("echo", {"text": "x"}), timeout=BOUND_S)
            assert await refused(one_more) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
            await tools.CancelCall(pb.CancelCallRequest(call_id="c0"))
            assert (await sessions[0].read()).finished.error.code == "CANCELLED_SIGNAL"
            assert text_of((await tools.CallTool(call("echo", {"text": "x"}), timeout=BOUND_S)).result) == "x"
            sessions[1].cancel()


def test_a_second_sidecar_on_the_same_socket_is_refused(sidecar: Sidecar) -> None:
    path = Path(sidecar.target.removeprefix("unix:"))
    with pytest.raises(ListenFailedError, match="another sidecar"), claimed(path):
        pass
    assert path.exists()


def test_a_socket_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ListenFailedError, match="another process"), claimed(path):
            pass
    assert path.exists()


def test_a_socket_that_nobody_serves_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
    with claimed(path):
        assert not path.exists()


def test_a_file_in_place_of_the_socket_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(ListenFailedError, match="not a socket"), claimed(path):
        pass
    assert path.read_text() == "precious"


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ListenFailedError, match="others may write") as caught, claimed(folder / "s"):
        pass
    assert caught.value.remedy == f"chmod go-w {folder}"
    folder.chmod(0o700)
    with claimed(folder / "s"):
        pass


def test_a_port_in_use_is_refused_in_words() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AssertionError, match="in use"), running_sidecar(server=f'listen = ["127.0.0.1:{port}"]'):
            pass


async def test_streams_without_an_end_do_not_hold_up_the_shutdown(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder]) as sidecar:
        async with sidecar.channel() as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            await watch.read()
            follow = plugin_pb.TailPluginLogsRequest(name="speech", follow=True)
            tail = PluginServiceStub(channel).TailPluginLogs(follow)
            assert await tail.read()
            sidecar.signal(signal.SIGTERM)
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await tail.read() is not grpc.aio.EOF:
                    pass
            # A client whose own write fails because the sidecar is gone drops the status that it has not read yet.
            assert await tail.code() in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
        assert await asyncio.to_thread(sidecar.wait) == 0
