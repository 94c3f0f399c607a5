"""What programs need that use an interpreter's libraries, or a copy of its executable."""

import json
import subprocess
from pathlib import Path


def prefix_of(python):
    return Path(python.path).parent.parent


def environment_of(python, *library_folders):
    """What a copy of this interpreter's executable needs to find its libraries, binary and Python."""
    prefix = prefix_of(python)
    folders = [*library_folders, prefix / "lib", *(prefix / "lib").glob("*-linux-*")]
    return {"PYTHONHOME": str(prefix), "LD_LIBRARY_PATH": ":".join(map(str, folders))}


def library_of(python):
    return next((prefix_of(python) / "lib").glob(f"libpython{python.version[0]}.{python.version[1]}*.so.1.0"))


def static_library_of(python):
    """(libpython as an archive, which need not be there, what a program that is linked with it needs besides)."""
    question = "import json, sysconfig; print(json.dumps(sysconfig.get_config_vars('LIBPL', 'LIBRARY', 'LIBS', 'SYSLIBS')))"
    answer = subprocess.run([python.path, "-I", "-c", question], stdout=subprocess.PIPE, timeout=60, check=True)
    folder, name, *needed = json.loads(answer.stdout)
    return Path(folder, name), " ".join(filter(None, needed)).split()
