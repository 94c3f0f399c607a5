#include "cli/cli.h"
#include "cli/sampling.h"

#include "base/clock.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { ANNOUNCEMENT_BYTES = 80 };
static const uint64_t START_PATIENCE_NS = NS_PER_S;
static const uint64_t EXEC_PATIENCE_NS = 100 * NS_PER_MS;
enum { START_PERIOD_NS = 5000000 };

static const char help[] = "Usage: strobe attach [OPTIONS] PID\n"
                           "\n"
                           "Samples a running Python process until it ends or Ctrl-C, then reports. Nothing is\n"
                           "written into the process, and it is not stopped unless --blocking says so.\n"
                           "\n"
                           "  --children         sample the processes that it starts, too\n";

struct attach_options {
    struct sampling_options sampling;
    pid_t pid;
};

static volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct attach_options *options) {
    static const struct option known[] = {SAMPLING_LONG_OPTIONS, {0}};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, SAMPLING_SHORT_OPTIONS, known, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return sampling_finish_help();
        }
        const char *problem = sampling_take_option(&options->sampling, option, optarg);
        if (problem != NULL)
            return cli_usage_error("attach", "%s: '%s'", problem, cli_wrong_word(argv));
    }
    if (argc - optind != 1)
        return cli_usage_error("attach", argc == optind ? "no process id given" : "more than one process id given");
    if (!cli_parse_pid(argv[optind], &options->pid))
        return cli_usage_error("attach", "'%s' is not a process id", argv[optind]);
    const char *conflict = sampling_complete_options(&options->sampling);
    if (conflict != NULL)
        return cli_usage_error("attach", "%s", conflict);
    return -1;
}

/* The first signal ends the sampling, a second one the report. What was ignored (nohup) stays so. */
static void catch_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    /* What waits for time or news is interrupted all the same; a report that is being written is not cut. */
    const struct sigaction action = {.sa_handler = request_stop, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(signals[i], &action, NULL);
    }
}

static void announce(const struct attach_options *options, char text[static ANNOUNCEMENT_BYTES]) {
    double duration_s = (double)options->sampling.sampler.duration_ns / (double)NS_PER_S;
    if (options->sampling.sampler.duration_ns > 0)
        (void)snprintf(text, ANNOUNCEMENT_BYTES, "sampling process %d for %g s", (int)options->pid, duration_s);
    else
        (void)snprintf(text, ANNOUNCEMENT_BYTES, "sampling process %d until it ends or Ctrl-C", (int)options->pid);
}

/* A held process's signals wait for strobe, which hears of them by SIGCHLD. A strobe that Ctrl-Z stops would leave the
 * process stopped or waiting with it. */
static int catch_child_signals(void) {
    sigset_t mask;
    cli_ignore_stop_signals();
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGCHLD);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)sigprocmask(SIG_BLOCK, &mask, NULL);
    return signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
}

static bool drain_child_signals(void *context) {
    const int *fd = context;
    struct signalfd_siginfo info;
    while (read(*fd, &info, sizeof info) == (ssize_t)sizeof info)
        continue;
    return false;
}

/* How long to wait for a process to become a Python that can be sampled: it may have been started only just now, by a
 * shell that has yet to become it. */
static uint64_t patience_ns(struct process *process, enum status status) {
    char path[4096];
    if (status != STATUS_NOT_PYTHON)
        return status == STATUS_TORN ? START_PATIENCE_NS : 0;
    if (process_read_executable(process, path, sizeof path) != STATUS_OK)
        return 0;
    const char *slash = strrchr(path, '/');
    bool is_python = strncmp(slash != NULL ? slash + 1 : path, "python", strlen("python")) == 0;
    return is_python ? START_PATIENCE_NS : EXEC_PATIENCE_NS;
}

/* What `attach` samples. */
struct attached {
    pid_t pid;
    struct process *process;
};

static enum status begin(void *context, struct sampler *sampler, struct error *error) {
    static const struct timespec pause = {.tv_nsec = START_PERIOD_NS};
    struct attached *attached = context;
    uint64_t start_ns = clock_monotonic_ns();
    for (;;) {
        struct process *again = NULL, *given = attached->process;
        struct error ignored = {0};
        TRY(process_open(attached->pid, &again, error));
        /* The sampler's from now on, whatever becomes of it. */
        attached->process = again;
        enum status status = sampler_add(sampler, given, error);
        if (status == STATUS_OK || stop_requested || clock_monotonic_ns() - start_ns >= patience_ns(again, status))
            return status;
        (void)nanosleep(&pause, NULL);
        *error = ignored;
    }
}

int command_attach(int argc, char **argv) {
    struct attach_options options = {0};
    struct error error = {0};
    struct attached attached = {0};
    char announcement[ANNOUNCEMENT_BYTES];
    sampling_init_options(&options.sampling);
    int ended = parse(argc, argv, &options);
    if (ended >= 0)
        return ended;
    if (process_open(options.pid, &attached.process, &error) != STATUS_OK)
        return cli_fail(&error);
    char *path = sampling_make_path(&options.sampling, process_command(attached.process), options.pid);
    if (path == NULL) {
        process_free(attached.process);
        return EXIT_FAILED;
    }
    attached.pid = options.pid;
    catch_signals();
    int child_fd = -1;
    if (options.sampling.sampler.target.blocking && (child_fd = catch_child_signals()) >= 0)
        options.sampling.sampler.wake = (struct sampler_wake){child_fd, drain_child_signals, &child_fd};
    announce(&options, announcement);
    struct sampling sampling = {&options.sampling, path, 0,    CAPTURE_ORIGIN_ATTACH, announcement, begin,
                                &attached,         0,    false};
    enum status status = sampling_record(&sampling, &stop_requested, &error);
    int exit_status = status == STATUS_OK ? sampling_report(&sampling) : cli_fail(&error);
    if (status != STATUS_OK && sampling.process_count == 0)
        sampling_remove_capture(&sampling);
    process_free(attached.process);
    free(path);
    return exit_status;
}
