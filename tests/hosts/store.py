"""Fill a bucket from a host and look into it: the object store is on the hosts' network, which the tests are not on.

python -m tests.hosts.store put FOLDER s3://BUCKET/NAME
python -m tests.hosts.store digests s3://BUCKET/NAME ...    a line of JSON: place -> name of a file -> SHA-256
"""

import hashlib
import json
import os
import sys
import urllib.request
from pathlib import Path

from clearspan.shards import storage


def put(folder: Path, target: str) -> None:
    bucket = target.split("/")[2]
    request = urllib.request.Request(f"{os.environ['AWS_ENDPOINT_URL']}/{bucket}", method="PUT")
    urllib.request.urlopen(request).close()
    for path in filter(Path.is_file, folder.rglob("*")):
        storage.publish_file(path, storage.join(target, path.relative_to(folder).as_posix()))


def digests(place: str) -> dict[str, str]:
    """The SHA-256 of each file of a dataset by its name, but for the records of what its units read."""
    names = [name for name in storage.tree(place) if not name.startswith(".clearspan/")]
    return {name: hashlib.sha256(storage.read_bytes(storage.join(place, name))).hexdigest() for name in names}


if __name__ == "__main__":
    if sys.argv[1] == "put":
        put(Path(sys.argv[2]), sys.argv[3])
    else:
        print(json.dumps({place: digests(place) for place in sys.argv[2:]}))
