"""The gRPC services: protobuf on the outside, the executor and the catalog on the inside."""

from fumehood_server.rpc.admission import Admission
from fumehood_server.rpc.descriptors import connections_that_fit, raise_descriptor_limit
from fumehood_server.rpc.disconnect import disconnect_unread
from fumehood_server.rpc.reading import RequestReader
from fumehood_server.rpc.refusals import RefusalRecords
from fumehood_server.rpc.result_messages import ResultWriter
from fumehood_server.rpc.server import ConnectionSettings, Serving, serving
from fumehood_server.rpc.server_context import ServerContext
from fumehood_server.rpc.sockets import ListenFailedError, make_socket_folder
from fumehood_server.rpc.tls import ServedCertificates
from fumehood_server.rpc.unread import UnreadAnswers

__all__ = [
    "Admission",
    "ConnectionSettings",
    "ListenFailedError",
    "RefusalRecords",
    "RequestReader",
    "ResultWriter",
    "ServedCertificates",
    "ServerContext",
    "Serving",
    "UnreadAnswers",
    "connections_that_fit",
    "disconnect_unread",
    "make_socket_folder",
    "raise_descriptor_limit",
    "serving",
]
