"""`requestState` (2026-07-28): what an `input_required` result gives the client to hand back with its answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fumehood.v1 import tool_service_pb2 as pb
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS


@dataclass(frozen=True, slots=True)
class RequestState:
    """Which call goes on, and what was asked. All of it is the client's word: the sidecar judges it as such."""

    call_id: str
    request_digest: str
    """Of the tool and the arguments, which the client sends once more beside this."""
    approval_id: str = ""
    """Of the approval that was asked for. Empty: the call's tool has asked something."""
    digest: str = ""
    """Of what is to be approved."""
    question_id: str = ""
    """Of the question that was asked: a state for each round."""

    def text(self) -> str:
        """For the client."""
        return json.dumps([self.call_id, self.request_digest, self.approval_id, self.digest, self.question_id])

    @classmethod
    def read(cls, text: str) -> RequestState:
        """From the client.

        Raises:
            MCPError: it is none.
        """
        try:
            call_id, request_digest, approval_id, digest, question_id = json.loads(text)
            if all(isinstance(each, str) for each in (call_id, request_digest, approval_id, digest, question_id)):
                return cls(call_id, request_digest, approval_id, digest, question_id)
        except (ValueError, TypeError, RecursionError):
            pass
        raise MCPError(INVALID_PARAMS, "requestState is not one that was given here")

    def check(self, request: pb.CallToolRequest) -> None:
        """See that the request is the one that the state was given for, before anything is done with its answers.

        Raises:
            MCPError: it calls another tool, or has other arguments.
        """
        if self.request_digest != digest_of(request):
            raise MCPError(INVALID_PARAMS, "requestState is of another request: send its tool and arguments with it")


def digest_of(request: pb.CallToolRequest) -> str:
    """Of a request's tool and arguments, in whichever order their members stand. The sidecar judges the rest."""
    arguments = json.dumps(json.loads(request.arguments_json), sort_keys=True)
    return hashlib.sha256(f"{request.tool}\n{arguments}".encode()).hexdigest()
