#include "cli/cli.h"
#include "cli/dump.h"

#include <getopt.h>
#include <stdlib.h>

enum { DEFAULT_LOCALS_CHARS = 128, MAX_LOCALS_CHARS = 1000000 };

static const char help[] = "Usage: strobe dump [OPTIONS] PID\n"
                           "\n"
                           "Shows the stack of every thread of a running Python process, innermost first.\n"
                           "\n"
                           "  --locals           also every frame's arguments and local variables\n"
                           "  --locals-chars N   cut each value at N characters (default 128)\n"
                           "  --async            also asyncio's tasks and what each awaits (3.14 on)\n"
                           "  --blocking         stop the process's threads for the look (milliseconds): a\n"
                           "                     picture of one instant. Without it nothing is stopped, and\n"
                           "                     a stack that changes all the time says so\n"
                           "  --json             as JSON, for programs\n"
                           "  --help             this text\n";

struct dump_options {
    struct look_options look;
    bool json;
    pid_t pid;
};

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct dump_options *options) {
    enum { OPTION_LOCALS = 256, OPTION_LOCALS_CHARS, OPTION_ASYNC, OPTION_BLOCKING, OPTION_JSON };
    static const struct option known[] = {
        {"locals", no_argument, NULL, OPTION_LOCALS},
        {"locals-chars", required_argument, NULL, OPTION_LOCALS_CHARS},
        {"async", no_argument, NULL, OPTION_ASYNC},
        {"blocking", no_argument, NULL, OPTION_BLOCKING},
        {"json", no_argument, NULL, OPTION_JSON},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int option;
    long number = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case OPTION_LOCALS:
            options->look.with_locals = true;
            break;
        case OPTION_LOCALS_CHARS:
            if (!cli_parse_number(optarg, 1, MAX_LOCALS_CHARS, &number))
                return cli_usage_error("dump", "--locals-chars takes a number from 1 to %d", MAX_LOCALS_CHARS);
            options->look.locals_chars = (size_t)number;
            break;
        case OPTION_ASYNC:
            options->look.with_tasks = true;
            break;
        case OPTION_BLOCKING:
            options->look.blocking = true;
            break;
        case OPTION_JSON:
            options->json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_finish_output();
        default:
            return cli_usage_error("dump", "there is no option '%s', or its value is missing", cli_wrong_word(argv));
        }
    }
    if (argc - optind != 1)
        return cli_usage_error("dump", argc == optind ? "no process id given" : "more than one process id given");
    if (!cli_parse_pid(argv[optind], &options->pid))
        return cli_usage_error("dump", "'%s' is not a process id", argv[optind]);
    return -1;
}

static enum status open_source(void *context, const char *path, int *fd) {
    return process_open_path(context, path, fd);
}

static enum status write_look(struct process *process, const struct look *look, bool json) {
    if (json)
        return dump_write_json(look, stdout);
    struct source_cache *sources = source_cache_new(open_source, process, SOURCE_ANY);
    if (sources == NULL)
        return STATUS_FAILED;
    enum status status = dump_write_text(look, sources, cli_wants_colour(stdout), stdout);
    source_cache_free(sources);
    return status;
}

int command_dump(int argc, char **argv) {
    struct dump_options options = {.look = {.locals_chars = DEFAULT_LOCALS_CHARS}};
    struct error error = {0};
    struct process *process = NULL;
    struct look look = {0};
    int ended = parse(argc, argv, &options);
    if (ended >= 0)
        return ended;
    cli_buffer_output();
    if (options.look.blocking)
        cli_ignore_stop_signals();
    enum status status = process_open(options.pid, &process, &error);
    if (status != STATUS_OK)
        return cli_fail(&error);
    status = look_take(process, &options.look, &look, &error);
    if (status == STATUS_OK && look.newer_than_known)
        cli_warn_of_version(look.pid);
    if (status == STATUS_OK && look.exhausted)
        cli_say("process %d has more to show than strobe is willing to read at once; what it shows is incomplete",
                (int)look.pid);
    if (status == STATUS_OK && look.tasks_error.status != STATUS_OK)
        cli_say("%s", look.tasks_error.text);
    if (status == STATUS_OK && write_look(process, &look, options.json) != STATUS_OK)
        status = error_set(&error, STATUS_FAILED, "there is not enough memory to show process %d", (int)options.pid);
    look_free(&look);
    process_free(process);
    return status == STATUS_OK ? cli_finish_output() : cli_fail(&error);
}
