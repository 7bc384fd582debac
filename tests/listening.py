"""The addresses at which a command's processes can be reached over TCP."""

import contextlib

import psutil


def addresses(pid: int) -> set[str]:
    """Return "IP:PORT" of each listening TCP socket, IPv4 and IPv6, of a process and of its descendants.

    Sockets of a process that ends meanwhile do not count.
    """
    process = psutil.Process(pid)
    return {
        f"{socket.laddr.ip}:{socket.laddr.port}"
        for one in [process, *process.children(recursive=True)]
        for socket in listening(one)
    }


def listening(process: psutil.Process) -> list:
    """Return one process's listening TCP sockets, as psutil describes them."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return []
