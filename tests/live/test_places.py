"""Where a Python can be: in another program, without its files, twice in one process, in another namespace."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import harness
import interpreters
import pytest
from embedding import environment_of, library_of, prefix_of, static_library_of
from harness import Target, assert_same_threads, dump, strobe

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


def copied(python, folder, name="program"):
    """{what: path} of copies of the executable, under another name, and of its libpython if it has one."""
    copies = {"executable": Path(shutil.copy2(python.path, folder / name))}
    if python.shared:
        copies["library"] = Path(shutil.copy2(library_of(python), folder))
    return copies


def assert_seen(python, target, *options):
    assert_same_threads(python, target.said["threads"], dump(target, *options))


def mapped_paths(pid):
    return {line.split(None, 5)[5].rstrip("\n") for line in open(f"/proc/{pid}/maps") if len(line.split(None, 5)) > 5}


def test_a_program_of_another_name(python, tmp_path):
    copies = copied(python, tmp_path)
    with Target(str(copies["executable"]), "threads.py", extra_env=environment_of(python, tmp_path)) as target:
        assert set(map(str, copies.values())) <= mapped_paths(target.pid)
        assert_seen(python, target)


KINDS = pytest.mark.parametrize("options", [["-pie", "-fPIE"], ["-no-pie", "-fno-pie"]], ids=["pie", "no-pie"])


def embed(program, options, *libraries):
    command = ["cc", *options, "-o", program, harness.TARGETS / "embed.c", *libraries]
    subprocess.run(command, check=True)
    assert interpreters.is_pie(program) == ("-pie" in options)


@KINDS
def test_embedded(python, tmp_path, options):
    if not python.shared:
        pytest.skip("no libpython to link with")
    library = library_of(python)
    embed(tmp_path / "application", options, library, f"-Wl,-rpath,{library.parent}")
    with Target(str(tmp_path / "application"), "threads.py", extra_env=environment_of(python)) as target:
        assert_seen(python, target)


@pytest.mark.parametrize("strip", [[], ["-s"]], ids=["", "stripped"])
@KINDS
def test_embedded_static(python, tmp_path, options, strip):
    """All of Python in the program itself, which exports it for extension modules."""
    if not python.shared:
        pytest.skip("the interpreter is such a program itself")
    archive, needed = static_library_of(python)
    if not archive.is_file():
        pytest.skip("no archive to link with")
    embed(tmp_path / "application", [*options, *strip], archive, "-rdynamic", *needed)
    with Target(str(tmp_path / "application"), "threads.py", extra_env=environment_of(python)) as target:
        assert not [path for path in mapped_paths(target.pid) if "libpython" in path]
        assert_seen(python, target)


@pytest.mark.parametrize("way", ["deleted", "replaced", "replaced_by_python"])
def test_files_that_are_gone(python, tmp_path, way):
    """Deleted, and replaced by something else or by another Python, while the program runs."""
    copies = copied(python, tmp_path)
    with Target(str(copies["executable"]), "threads.py", extra_env=environment_of(python, tmp_path)) as target:
        for path in copies.values():
            path.unlink()
            if way == "replaced":
                path.write_bytes(b"\x7fELF and nothing that makes sense" * 1000)
            elif way == "replaced_by_python":
                other = interpreters.supported()[0 if python.at_least(3, 12) else -1]
                shutil.copy2(other.path, path)
        assert [path for path in mapped_paths(target.pid) if path.endswith("(deleted)")]
        assert_seen(python, target)


def stripped(python, tmp_path):
    copies = copied(python, tmp_path)
    environment = environment_of(python, tmp_path)
    for path in copies.values():
        path.chmod(0o755)
        subprocess.run(["strip", "-s", path], check=True)
    if subprocess.run([copies["executable"], "-c", ""], env={**os.environ, **environment}, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("strip breaks this executable, whose segments patchelf has moved")
    return copies, environment


def test_stripped(python, tmp_path):
    copies, environment = stripped(python, tmp_path)
    with Target(str(copies["executable"]), "threads.py", extra_env=environment) as target:
        assert_seen(python, target)


def test_stripped_and_deleted(python, tmp_path):
    """Nothing is left but memory."""
    copies, environment = stripped(python, tmp_path)
    with Target(str(copies["executable"]), "threads.py", extra_env=environment) as target:
        for path in copies.values():
            path.unlink()
        assert_seen(python, target)


def test_a_second_mapping(python, tmp_path):
    copies = copied(python, tmp_path)
    with Target(python, "second_mapping.py", *copies.values(), *([library_of(python)] if python.shared else [])) as target:
        assert_seen(python, target)


def test_virtual_environment(python, tmp_path):
    subprocess.run(
        [python.path, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, env=environment_of_venv(python)
    )
    with Target(str(tmp_path / "venv" / "bin" / "python"), "threads.py") as target:
        assert_seen(python, target)


def environment_of_venv(python):
    return {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}


def unshare(*arguments):
    """The command that runs another in namespaces of its own, or a skip where that is not permitted."""
    command = ["unshare", *arguments]
    tried = subprocess.run([*command, "true"], stderr=subprocess.PIPE, text=True)
    if tried.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {tried.stderr.strip()}")
    return command


def only_child(pid):
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


class InNamespace(Target):
    """`command` runs the interpreter in the end: as itself, or as its child."""

    def __init__(self, command, path, script, *arguments, is_child, **options):
        self.prefix = command
        super().__init__(command[0], script, options=[*command[1:], path], *arguments, **options)
        if is_child:
            self.pid = only_child(self.process.pid)


def test_pid_namespace(python):
    """Ids are shown as the process itself has them; the one given is ours."""
    command = unshare("--pid", "--fork", "--kill-child", "--mount-proc")
    with InNamespace(command, python.path, "threads.py", is_child=True) as target:
        assert target.said["pid"] == 1 != target.pid
        assert_seen(python, target)
        assert_seen(python, target, "--blocking")


NAMELESS = """
import _thread, json, os, sys
def wait():
    os.write(tells, b"%d\\n" % _thread.get_native_id())
    os.read(never, 1)
hears, tells = os.pipe()
never, _ = os.pipe()
for _ in range(3): _thread.start_new_thread(wait, ())
told = b""
while told.count(b"\\n") < 3: told += os.read(hears, 100)
os.write(1, json.dumps([_thread.get_native_id(), *map(int, told.split())]).encode() + b"\\n")
sys.stdin.readline()
"""


def test_nameless_threads_in_a_pid_namespace(python, tmp_path):
    """Their ids, which up to 3.10 the C library alone knows, are such numbers as other words of its hold, too."""
    if python.at_least(3, 11):
        pytest.skip("the state has the native id")
    script = tmp_path / "nameless.py"
    script.write_text(NAMELESS)
    command = unshare("--pid", "--fork", "--kill-child", "--mount-proc")
    with InNamespace(command, python.path, script, is_child=True) as target:
        assert sorted(t["native_id"] for t in dump(target)["threads"]) == sorted(target.said)
        seen = strobe("attach", "-d", "0.1", "-f", "json", "--no-capture", target.pid, cwd=tmp_path).json()
    assert sorted(t["native_id"] for t in seen["threads"]) == sorted(target.said)


@pytest.mark.parametrize("with_library", [False, True])
def test_mount_namespace(python, tmp_path, with_library):
    """The executable, or its library, lies in a file system that only the target has mounted."""
    command = unshare("--mount")
    if with_library and not python.shared:
        pytest.skip("no libpython")
    copies = copied(python, tmp_path)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = (
        f"mount -t tmpfs none {hidden} && cp {' '.join(map(str, copies.values()))} {hidden} &&"
        f" exec {hidden}/program \"$@\""
    )
    # For the program only: a libc among its libraries need not suit the tools.
    needed = environment_of(python, hidden if with_library else tmp_path)
    script = script.replace("exec ", "exec env " + " ".join(f"{name}={value}" for name, value in needed.items()) + " ")
    with InNamespace(
        [*command, "sh", "-c", script, "sh"][:-1],
        "sh",
        "threads.py",
        is_child=False,
    ) as target:
        assert not list(hidden.iterdir())
        assert f"{hidden}/program" in mapped_paths(target.pid)
        assert_seen(python, target)


@needs_root
def test_another_root(python, tmp_path):
    command = unshare("--mount")
    script = f"mount --rbind / {tmp_path} && exec chroot {tmp_path} \"$@\""
    with InNamespace([*command, "sh", "-c", script, "sh"], python.path, "threads.py", is_child=False) as target:
        assert os.readlink(f"/proc/{target.pid}/root") == str(tmp_path)
        assert_seen(python, target)
        # Source lines are read where the target has them.
        assert "return stop()" in strobe("dump", target.pid).stdout


@needs_root
def test_user_without_privileges(python, tmp_path_factory):
    """strobe as the same user as the target, with no capability."""
    if not can_run(python):
        pytest.skip("the interpreter cannot be reached by every user")
    with public_folder() as folder:
        binary = harness.copy_for_everyone(harness.STROBE, folder)
        shutil.copytree(harness.TARGETS, folder / "targets")
        user = dict(user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
        with Target(python, folder / "targets" / "threads.py", **user) as target:
            result = strobe("dump", "--json", target.pid, binary=binary, **user)
            if result.returncode == harness.NO_PERMISSION and "ptrace_scope" in result.stderr:
                pytest.skip("ptrace_scope forbids it here")
            assert_same_threads(python, target.said["threads"], result.json())
            blocked = strobe("dump", "--json", "--blocking", target.pid, binary=binary, **user)
            assert_same_threads(python, target.said["threads"], blocked.json())


def can_run(python):
    try:
        subprocess.run([python.path, "-c", ""], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=True)
        return True
    except (OSError, subprocess.SubprocessError):
        return False


def public_folder():
    import tempfile

    class Folder(tempfile.TemporaryDirectory):
        def __enter__(self):
            path = Path(super().__enter__())
            path.chmod(0o755)
            return path

    return Folder(prefix="strobe-", dir="/tmp")


def claims_minor_version(executable, minor):
    """Makes the table in which this executable describes itself speak of another version (_Py_DebugOffsets: the cookie,
    then PY_VERSION_HEX as 64 bits; Include/internal/pycore_debug_offsets.h, 3.13 to 3.15)."""
    content = bytearray(executable.read_bytes())
    versions = [at + 8 for at in find_all(content, b"xdebugpy") if content[at + 11 : at + 16] == b"\x03\0\0\0\0"]
    assert len(versions) == 1
    content[versions[0] + 2] = minor
    executable.write_bytes(content)


def find_all(content, text):
    at = content.find(text)
    while at >= 0:
        yield at
        at = content.find(text, at + 1)


def test_a_version_newer_than_known(python, tmp_path):
    """It is read by what it says of itself, and strobe warns that it was."""
    if not python.at_least(3, 15):
        pytest.skip("the newest table only is taken to be that of what follows")
    copies = copied(python, tmp_path)
    claims_minor_version(copies.get("library", copies["executable"]), python.version[1] + 1)
    with Target(str(copies["executable"]), "threads.py", extra_env=environment_of(python, tmp_path)) as target:
        result = strobe("dump", "--json", target.pid)
        assert_same_threads(python, target.said["threads"], result.json())
        sampled = strobe("attach", "-d", 0.2, "--idle", "-f", "json", "-o", tmp_path / "report.json", target.pid)
    warning = f"strobe: process {target.pid} runs a CPython newer than strobe knows; it is read by its own description\n"
    assert result.stderr == warning
    assert sampled.stderr.count(warning) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert any(file["path"].endswith("/threads.py") for file in report["files"])
