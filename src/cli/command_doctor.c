#include "cli/cli.h"
#include "cli/doctor.h"

#include <getopt.h>

static const char help[] = "Usage: strobe doctor [PID]\n"
                           "\n"
                           "Says what works on this machine and how to get what does not: which processes\n"
                           "may be read and stopped, whether children are told of, where the agent is, and\n"
                           "which of the interpreters on PATH strobe knows. With PID, the same of that\n"
                           "process. Each finding is one line that begins with ok, no or note.\n"
                           "\n"
                           "  --help             this text\n"
                           "\n"
                           "Exit status: 0 your own processes can be read, and PID if one is given; 4 they\n"
                           "cannot; 3 no such process; 5 not a Python that strobe knows.\n";

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, pid_t *pid) {
    static const struct option known[] = {{"help", no_argument, NULL, 'h'}, {0}};
    opterr = 0;
    int option = getopt_long(argc, argv, "h", known, NULL);
    if (option == 'h') {
        fputs(help, stdout);
        return cli_finish_output();
    }
    if (option != -1)
        return cli_usage_error("doctor", "there is no option '%s'", cli_wrong_word(argv));
    if (argc - optind > 1)
        return cli_usage_error("doctor", "more than one process id given");
    if (optind < argc && !cli_parse_pid(argv[optind], pid))
        return cli_usage_error("doctor", "'%s' is not a process id", argv[optind]);
    return -1;
}

int command_doctor(int argc, char **argv) {
    struct error error = {0};
    pid_t pid = 0;
    int ended = parse(argc, argv, &pid);
    if (ended >= 0)
        return ended;
    bool may_read = doctor_machine();
    doctor_agent();
    doctor_interpreters();
    enum status status = pid != 0 ? doctor_process(pid, &error) : STATUS_OK;
    if (status != STATUS_OK) {
        /* What there is to say goes before the error, wherever the two go. */
        (void)fflush(stdout);
        return cli_fail(&error);
    }
    int exit_status = cli_finish_output();
    if (exit_status != EXIT_OK)
        return exit_status;
    return may_read || pid != 0 ? EXIT_OK : EXIT_PERMISSION;
}
