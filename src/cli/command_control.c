/* `strobe start PID` and `strobe stop PID`: sampling from inside, on and off. */
#include "cli/cli.h"

#include "sampler/agent_control.h"

#include <string.h>

static const char help[] = "Usage: strobe start PID\n"
                           "       strobe stop PID\n"
                           "\n"
                           "Begins or pauses the sampling of a process that runs under 'strobe run', which may\n"
                           "have been told --on-demand. From Python: strobe.start() and strobe.stop().\n"
                           "\n"
                           "  --help             this text\n";

static int control(int argc, char **argv, enum wire_control wanted) {
    struct error error = {0};
    pid_t pid = 0;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return cli_finish_output();
    }
    if (argc != 2)
        return cli_usage_error(argv[0], argc < 2 ? "no process id given" : "more than one process id given");
    if (!cli_parse_pid(argv[1], &pid))
        return cli_usage_error(argv[0], "'%s' is not a process id", argv[1]);
    return agent_control(pid, wanted, &error) == STATUS_OK ? EXIT_OK : cli_fail(&error);
}

int command_start(int argc, char **argv) {
    return control(argc, argv, WIRE_CONTROL_SAMPLE);
}

int command_stop(int argc, char **argv) {
    return control(argc, argv, WIRE_CONTROL_PAUSE);
}
