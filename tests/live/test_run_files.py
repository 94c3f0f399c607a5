"""By which names `strobe run` tells of files."""

from test_run_agent import BURN, run  # noqa: F401 (a fixture)

RELATIVE = BURN + """
with open("called.py") as file:
    code = compile(file.read(), "called.py", "exec")
os.mkdir("elsewhere")
os.chdir("elsewhere")
exec(code)
"""

CALLED = """
def work(seconds): burn(seconds)
work(0.05)
for i in range(10):
    if os.fork() == 0:
        work(0.005)
        os._exit(0)
    os.wait()
"""


def test_relative_names_of_files(python, run, tmp_path):  # noqa: F811
    """They are relative to where the program began, and are so in children that are gone before strobe has seen them."""
    (tmp_path / "called.py").write_text(CALLED)
    ran = run("--", python.path, "-c", RELATIVE)
    paths = {row["path"] for row in ran.report["functions"] if row["function"] == "work"}
    assert paths == {str(tmp_path / "called.py")}
