"""Find the TCP addresses at which a command's processes listen."""

import contextlib

import psutil


def addresses(pid: int) -> set[str]:
    """Return "IP:PORT" of each listening TCP socket, IPv4 and IPv6, of a process and its descendants.

    A process that ends meanwhile is skipped.
    """
    process = psutil.Process(pid)
    return {
        f"{socket.laddr.ip}:{socket.laddr.port}"
        for member in [process, *process.children(recursive=True)]
        for socket in listening(member)
    }


def listening(process: psutil.Process) -> list:
    """Return one process's listening TCP sockets, as psutil describes them."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [socket for socket in process.net_connections("tcp") if socket.status == psutil.CONN_LISTEN]
    return []
