#include "cli/cli.h"
#include "cli/recorder.h"
#include "cli/reporting.h"

#include "base/clock.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_RATE_HZ = 1000, MAX_RATE_HZ = 10000000, ANNOUNCEMENT_BYTES = 80 };

static const char help[] = "Usage: strobe attach [OPTIONS] PID\n"
                           "\n"
                           "Samples a running Python process until it ends or Ctrl-C, then reports. Nothing is\n"
                           "written into the process, and it is not stopped.\n"
                           "\n"
                           "  -r, --rate HZ      samples a second (default 1000)\n"
                           "  -d, --duration S   stop after S seconds\n"
                           "  --mode MODE        what a sample stands for: wall (default), cpu (only threads\n"
                           "                     that ran), gil (only the one that holds the GIL)\n"
                           "  --blocking         stop the threads for each sample\n"
                           "  --native           show where C code stands between Python frames\n"
                           "  --capture FILE     write the capture there (default NAME-PID.strobe)\n"
                           "  --no-capture       keep no capture\n"
                           "  --quiet            say nothing but errors\n";

enum { OPTION_MODE = 256, OPTION_BLOCKING, OPTION_NATIVE, OPTION_CAPTURE, OPTION_NO_CAPTURE, OPTION_QUIET };

struct attach_options {
    struct sampler_options sampler;
    struct report_options report;
    const char *capture; /* NULL: by the program's name */
    bool no_capture;
    bool quiet;
    pid_t pid;
};

static volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

static bool take_mode(struct attach_options *options, const char *name) {
    static const char *const names[] = {[SAMPLING_WALL] = "wall", [SAMPLING_CPU] = "cpu", [SAMPLING_GIL] = "gil"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            options->sampler.target.mode = (enum sampling_mode)i;
            return true;
        }
    return false;
}

static bool take_positive(const char *text, double most, double *number) {
    char *end = NULL;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number > 0 && *number <= most;
}

/* What is wrong with the option's value, or NULL. */
static const char *take_option(struct attach_options *options, int option, const char *value) {
    double number = 0;
    switch (option) {
    case 'r':
        return take_positive(value, MAX_RATE_HZ, &options->sampler.rate_hz) ? NULL : "--rate takes a number of Hz";
    case 'd':
        if (!take_positive(value, 1e9, &number))
            return "--duration takes a number of seconds";
        options->sampler.duration_ns = (uint64_t)(number * (double)NS_PER_S);
        return NULL;
    case OPTION_MODE:
        return take_mode(options, value) ? NULL : "--mode takes wall, cpu or gil";
    case OPTION_BLOCKING:
        options->sampler.target.blocking = true;
        return NULL;
    case OPTION_NATIVE:
        options->sampler.target.native_boundaries = true;
        return NULL;
    case OPTION_CAPTURE:
        options->capture = value;
        return NULL;
    case OPTION_NO_CAPTURE:
        options->no_capture = true;
        return NULL;
    case OPTION_QUIET:
        options->quiet = true;
        return NULL;
    default:
        return "there is no such option, or its value is missing";
    }
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct attach_options *options) {
    static const struct option known[] = {
        REPORT_LONG_OPTIONS,
        {"rate", required_argument, NULL, 'r'},
        {"duration", required_argument, NULL, 'd'},
        {"mode", required_argument, NULL, OPTION_MODE},
        {"blocking", no_argument, NULL, OPTION_BLOCKING},
        {"native", no_argument, NULL, OPTION_NATIVE},
        {"capture", required_argument, NULL, OPTION_CAPTURE},
        {"no-capture", no_argument, NULL, OPTION_NO_CAPTURE},
        {"quiet", no_argument, NULL, OPTION_QUIET},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "hf:o:r:d:", known, NULL)) != -1) {
        const char *problem = NULL;
        if (option == 'h') {
            fputs(help, stdout);
            fputs(report_options_help, stdout);
            fputs("  --help             this text\n", stdout);
            return cli_finish_output();
        }
        if (!report_take_option(&options->report, option, optarg, &problem))
            problem = take_option(options, option, optarg);
        if (problem != NULL)
            return cli_usage_error("attach", "%s: '%s'", problem, optarg != NULL ? optarg : argv[optind - 1]);
    }
    if (argc - optind != 1)
        return cli_usage_error("attach", argc == optind ? "no process id given" : "more than one process id given");
    if (!cli_parse_pid(argv[optind], &options->pid))
        return cli_usage_error("attach", "'%s' is not a process id", argv[optind]);
    report_complete_options(&options->report);
    return -1;
}

/* NAME-PID.strobe, NAME being the script or module that runs; in the current folder. The caller frees it. */
static char *capture_name(struct process *process) {
    char **command = process_command(process);
    const char *name = command[0] != NULL ? command[0] : "python";
    for (size_t i = 1; command[0] != NULL && command[i] != NULL; i++)
        if (command[i][0] != '-') {
            name = command[i];
            break;
        }
    const char *slash = strrchr(name, '/');
    name = slash != NULL && slash[1] != '\0' ? slash + 1 : name;
    size_t length = strcspn(name, " \t\n(");
    if (length > 3 && strncmp(name + length - 3, ".py", 3) == 0)
        length -= 3;
    char *path = NULL;
    if (asprintf(&path, "%.*s-%d.strobe", (int)(length < 100 ? length : 100), name, (int)process_pid(process)) < 0)
        return NULL;
    return path;
}

/* A capture that nobody wants to keep is a file without a name. */
static char *unnamed_capture(void) {
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    if (asprintf(&path, "%s/strobe-XXXXXX", folder != NULL && folder[0] != '\0' ? folder : "/tmp") < 0)
        return NULL;
    int fd = mkstemp(path);
    if (fd < 0) {
        free(path);
        return NULL;
    }
    (void)close(fd);
    return path;
}

/* The first signal ends the sampling, a second one the report. What was ignored (nohup) stays so. */
static void catch_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = request_stop, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(signals[i], &action, NULL);
    }
}

static void announce(const struct attach_options *options, char text[static ANNOUNCEMENT_BYTES]) {
    double duration_s = (double)options->sampler.duration_ns / (double)NS_PER_S;
    if (options->sampler.duration_ns > 0)
        (void)snprintf(text, ANNOUNCEMENT_BYTES, "sampling process %d for %g s", (int)options->pid, duration_s);
    else
        (void)snprintf(text, ANNOUNCEMENT_BYTES, "sampling process %d until it ends or Ctrl-C", (int)options->pid);
}

static enum status record(struct process *process, const struct attach_options *options, const char *path,
                          struct error *error) {
    static const enum capture_mode modes[] = {
        [SAMPLING_WALL] = CAPTURE_MODE_WALL, [SAMPLING_CPU] = CAPTURE_MODE_CPU, [SAMPLING_GIL] = CAPTURE_MODE_GIL};
    struct recorder_options how = {options->sampler.rate_hz, modes[options->sampler.target.mode], CAPTURE_ORIGIN_ATTACH,
                                   NULL};
    char announcement[ANNOUNCEMENT_BYTES];
    announce(options, announcement);
    how.announcement = options->quiet ? NULL : announcement;
    struct capture_writer_options writing = {.tick_ns = capture_tick_ns(how.rate_hz), .in_background = true};
    struct capture_writer *writer = NULL;
    TRY(capture_writer_open(path, &writing, &writer, error));
    struct recorder *recorder = recorder_new(writer, &how);
    enum status status = STATUS_FAILED;
    if (recorder != NULL)
        status = sampler_run(process, &options->sampler, recorder_sink(recorder), &stop_requested, error);
    recorder_free(recorder);
    if (status != STATUS_OK && capture_writer_error(writer)->status != STATUS_OK)
        (void)error_set(error, STATUS_FAILED, "%s: %s; what was sampled before is in it", path,
                        capture_writer_error(writer)->text);
    struct error ignored = {0};
    enum status closed = capture_writer_close(writer, status == STATUS_OK ? error : &ignored);
    return status == STATUS_OK ? closed : status;
}

int command_attach(int argc, char **argv) {
    struct attach_options options = {.sampler = {.rate_hz = DEFAULT_RATE_HZ}};
    struct error error = {0};
    struct process *process = NULL;
    int ended = parse(argc, argv, &options);
    if (ended >= 0)
        return ended;
    if (process_open(options.pid, &process, &error) != STATUS_OK)
        return cli_fail(&error);
    char *made = options.no_capture ? unnamed_capture() : options.capture == NULL ? capture_name(process) : NULL;
    const char *path = made != NULL ? made : options.capture;
    if (path == NULL)
        return cli_fail(&(struct error){STATUS_FAILED, "there is no room for the capture"});
    catch_signals();
    enum status status = record(process, &options, path, &error);
    int exit_status = status == STATUS_OK ? report_captures(&path, 1, &options.report) : cli_fail(&error);
    if (options.no_capture || status == STATUS_NOT_PYTHON)
        (void)unlink(path);
    else if (!options.quiet && status == STATUS_OK)
        cli_say("the capture is in %s ('strobe report %s' makes any other report of it)", path, path);
    free(made);
    return exit_status;
}
