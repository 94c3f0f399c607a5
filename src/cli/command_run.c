#include "cli/cli.h"
#include "cli/sampling.h"

#include "process/spawn.h"

#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As shells say it. */
enum { EXIT_CANNOT_EXECUTE = 126, EXIT_NOT_FOUND = 127 };

static const char help[] = "Usage: strobe run --no-agent [OPTIONS] SCRIPT.py [ARGS]\n"
                           "       strobe run --no-agent [OPTIONS] -m MODULE [ARGS]\n"
                           "       strobe run --no-agent [OPTIONS] -c CODE [ARGS]\n"
                           "       strobe run --no-agent [OPTIONS] -- COMMAND [ARGS]\n"
                           "\n"
                           "Runs a program and samples it and the processes that it starts, then reports to\n"
                           "standard error. The program's streams, signals and exit status are its own. Scripts,\n"
                           "modules and code are run by the python3 that is first on PATH.\n"
                           "\n"
                           "  --no-agent         sample from outside (there is no agent yet)\n"
                           "  --no-children      do not sample the processes that it starts\n";

enum { OPTION_NO_AGENT = 256 };

struct run_options {
    struct sampling_options sampling;
    bool no_agent;
    char **command; /* an array of our own; the words are argv's */
};

/* `first` and `second` (each NULL: none), then the rest of argv. */
static char **make_command(const char *first, const char *second, const char *third, char **rest, int rest_count) {
    char **command = calloc((size_t)rest_count + 4, sizeof command[0]);
    size_t count = 0;
    if (command == NULL)
        return NULL;
    for (const char *const *word = (const char *const[]){first, second, third, NULL}; *word != NULL; word++)
        command[count++] = (char *)(uintptr_t)*word;
    memcpy(command + count, rest, (size_t)rest_count * sizeof command[0]);
    return command;
}

/* What is to be run: -m or -c with its value when `option` is that, else what stands at optind. */
static int take_command(struct run_options *options, int argc, char **argv, int option, bool is_command) {
    const char *letter = option == 'm' ? "-m" : option == 'c' ? "-c" : NULL;
    if (!options->no_agent)
        return cli_usage_error("run", "the agent does not exist yet: --no-agent samples from outside");
    if (letter == NULL && optind == argc)
        return cli_usage_error("run", "no program given");
    options->command = make_command(is_command ? NULL : "python3", letter, letter != NULL ? optarg : NULL,
                                    argv + optind, argc - optind);
    if (options->command == NULL)
        return cli_fail(&(struct error){STATUS_FAILED, "there is not enough memory"});
    report_complete_options(&options->sampling.report);
    return -1;
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct run_options *options) {
    static const struct option known[] = {SAMPLING_LONG_OPTIONS, {"no-agent", no_argument, NULL, OPTION_NO_AGENT}, {0}};
    int option, before = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+m:c:" SAMPLING_SHORT_OPTIONS, known, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return sampling_finish_help();
        }
        if (option == 'm' || option == 'c')
            break;
        const char *problem = NULL;
        if (option == OPTION_NO_AGENT)
            options->no_agent = true;
        else
            problem = sampling_take_option(&options->sampling, option, optarg);
        if (problem != NULL)
            return cli_usage_error("run", "%s: '%s'", problem, optarg != NULL ? optarg : argv[optind - 1]);
        before = optind;
    }
    /* What getopt takes without returning an option is the "--". */
    return take_command(options, argc, argv, option, option == -1 && optind > before);
}

static bool poll_command(void *context) {
    struct spawn_news news;
    spawn_poll(context, &news);
    return news.ended;
}

static enum status begin(void *context, struct sampler *sampler, struct error *error) {
    TRY(sampler_expect(sampler, spawn_pid(context), error));
    return spawn_start(context, error);
}

/* Until the command has ended, strobe stands between it and whoever sends signals. */
static int await_end(struct spawn *spawn) {
    struct spawn_news news;
    for (spawn_poll(spawn, &news); !news.ended; spawn_poll(spawn, &news)) {
        struct pollfd poll_fd = {.fd = spawn_fd(spawn), .events = POLLIN};
        (void)poll(&poll_fd, 1, -1);
    }
    return spawn_exit_code(news.wait_status);
}

static int fail_to_start(const struct error *error, const char *command) {
    cli_say("%s: %s", command, error->text);
    return error->status == STATUS_NOT_FOUND    ? EXIT_NOT_FOUND
           : error->status == STATUS_PERMISSION ? EXIT_CANNOT_EXECUTE
                                                : EXIT_FAILED;
}

/* What a command did is its own affair; what strobe could not do is said, and does not change the exit status. */
static void report(const struct sampling *sampling, enum status status, const struct error *error,
                   const char *command) {
    if (status != STATUS_OK)
        (void)cli_fail(error);
    if (sampling->process_count > 0 && status == STATUS_OK) {
        (void)sampling_report(sampling);
        return;
    }
    if (status == STATUS_OK)
        cli_say("nothing was sampled: %s did not become a Python that strobe knows", command);
    if (sampling->process_count == 0 || sampling->options->no_capture)
        (void)unlink(sampling->path);
}

static int run(struct run_options *options, struct spawn *spawn, const char *path) {
    static const volatile sig_atomic_t never;
    struct error error = {0};
    struct sampling sampling = {&options->sampling, path, 0, CAPTURE_ORIGIN_RUN, NULL, begin, spawn, 0};
    options->sampling.sampler.wake = (struct sampler_wake){spawn_fd(spawn), poll_command, spawn};
    options->sampling.report.to_stderr = true;
    enum status status = sampling_record(&sampling, &never, &error);
    int exit_status = EXIT_FAILED;
    bool started = spawn_started(spawn);
    if (started)
        exit_status = await_end(spawn);
    spawn_close(spawn);
    if (started)
        report(&sampling, status, &error, options->command[0]);
    else
        (void)unlink(path);
    return started ? exit_status : fail_to_start(&error, options->command[0]);
}

int command_run(int argc, char **argv) {
    struct run_options options = {.sampling.sampler.children = true};
    struct error error = {0};
    struct spawn *spawn = NULL;
    sampling_init_options(&options.sampling);
    int ended = parse(argc, argv, &options);
    if (ended >= 0)
        return ended;
    if (spawn_open(options.command, &spawn, &error) != STATUS_OK)
        return cli_fail(&error);
    cli_ignore_write_signals();
    char *path = sampling_make_path(&options.sampling, options.command, spawn_pid(spawn));
    int exit_status = EXIT_FAILED;
    if (path != NULL)
        exit_status = run(&options, spawn, path);
    else
        spawn_close(spawn);
    free(path);
    free(options.command);
    return exit_status;
}
