"""Foundations of masters and slaves: helpers, an HTTP client, and the replies of servers."""

from ding.interaction.base.app import (
    CommonErrorCode,
    ResponsibleException,
    failure_response,
    flask_response,
    get_values_from_response,
    responsible,
    success_response,
)
from ding.interaction.base.common import (
    ControllableContext,
    ControllableService,
    DblEvent,
    default_func,
    random_token,
    translate_dict_func,
)
from ding.interaction.base.engine import HttpEngine, get_http_engine_class
from ding.interaction.base.network import get_host_ip, split_http_address

__all__ = [
    "CommonErrorCode",
    "ControllableContext",
    "ControllableService",
    "DblEvent",
    "HttpEngine",
    "ResponsibleException",
    "default_func",
    "failure_response",
    "flask_response",
    "get_host_ip",
    "get_http_engine_class",
    "get_values_from_response",
    "random_token",
    "responsible",
    "split_http_address",
    "success_response",
    "translate_dict_func",
]
