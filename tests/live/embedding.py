"""What programs need that use an interpreter's libraries, or a copy of its executable."""

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
