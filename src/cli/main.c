#include "cli/cli.h"

#include <string.h>

static const char help[] = "strobe shows what a running Python program does, and changes nothing in it.\n"
                           "\n"
                           "Usage: strobe COMMAND [OPTIONS] ...\n"
                           "\n"
                           "Commands:\n"
                           "  dump PID           every thread's stack, once\n"
                           "  run SCRIPT.py      runs a program and samples it, then reports; also with\n"
                           "                     -m MODULE, -c CODE or -- COMMAND\n"
                           "  attach PID         samples a running process, then reports\n"
                           "  start|stop PID     samples a program that 'run' has started, or pauses that\n"
                           "  report CAPTURE     any report from what was captured\n"
                           "  diff BEFORE AFTER  compares two captures\n"
                           "  merge A B -o OUT   adds captures up into one\n"
                           "  doctor [PID]       what works on this machine, and how to get what does not\n"
                           "\n"
                           "  --help       this text; 'strobe COMMAND --help' has every option\n"
                           "  --version    the version of strobe\n"
                           "\n"
                           "CPython 3.8 to 3.15 on Linux, with the GIL or free-threaded. Only 'run' loads\n"
                           "anything into the program (unless --no-agent). Another user's process is read\n"
                           "as root, or with CAP_SYS_PTRACE.\n"
                           "\n"
                           "Exit status: of 'run' the program's own. Else 0 done; 1 strobe failed; 2 wrong\n"
                           "usage; 3 no such process; 4 no permission; 5 not a Python that strobe knows;\n"
                           "6 a damaged file.\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"attach", command_attach}, {"diff", command_diff},   {"dump", command_dump}, {"merge", command_merge},
    {"report", command_report}, {"start", command_start}, {"stop", command_stop}, {"doctor", command_doctor},
};

int main(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[1], "run") == 0)
        return command_run(argc - 1, argv + 1);
    cli_ignore_write_signals();
    if (argc < 2)
        return cli_usage_error("", "no command given");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        fputs(help, stdout);
        return cli_finish_output();
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("strobe " STROBE_VERSION);
        return cli_finish_output();
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return cli_usage_error("", "there is no command '%s'", argv[1]);
}
