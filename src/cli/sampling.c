#include "cli/sampling.h"

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/program.h"
#include "cli/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_RATE_HZ = 1000, MAX_RATE_HZ = 10000000, MAX_NAME_BYTES = 100 };
static const double MIN_RATE_HZ = 0.001, MIN_SECONDS = 1e-6, MAX_SECONDS = 1e9;

static const char help[] = "  -r, --rate HZ      samples a second (default 1000)\n"
                           "  -d, --duration S   sample for S seconds (default: to the end); the program runs on\n"
                           "  --mode MODE        what a sample stands for: wall (default), cpu (only threads\n"
                           "                     that ran), gil (only the one that holds the GIL). 'run'\n"
                           "                     takes it with --no-agent only\n"
                           "  --blocking         stop the threads for each sample ('run': with --no-agent only)\n"
                           "  --native           show where C code stands between Python frames (3.12 and later;\n"
                           "                     with the agent, 3.11)\n"
                           "  --capture FILE     write the capture there (default NAME-PID.strobe)\n"
                           "  --no-capture       keep no capture\n"
                           "  --quiet            say nothing but the report and errors\n";

void sampling_init_options(struct sampling_options *options) {
    options->sampler.rate_hz = DEFAULT_RATE_HZ;
}

int sampling_finish_help(void) {
    fputs(help, stdout);
    fputs(report_options_help, stdout);
    fputs("  --help             this text\n", stdout);
    return cli_finish_output();
}

static bool take_mode(struct sampling_options *options, const char *name) {
    static const char *const names[] = {[SAMPLING_WALL] = "wall", [SAMPLING_CPU] = "cpu", [SAMPLING_GIL] = "gil"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            options->sampler.target.mode = (enum sampling_mode)i;
            return true;
        }
    return false;
}

static bool take_number(const char *text, double least, double most, double *number) {
    char *end = NULL;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number >= least && *number <= most;
}

const char *sampling_take_option(struct sampling_options *options, int option, const char *value) {
    const char *problem = NULL;
    double number = 0;
    if (report_take_option(&options->report, option, value, &problem))
        return problem;
    switch (option) {
    case 'r':
        return take_number(value, MIN_RATE_HZ, MAX_RATE_HZ, &options->sampler.rate_hz)
                   ? NULL
                   : "--rate takes a number of Hz (0.001 to 10000000)";
    case 'd':
        if (!take_number(value, MIN_SECONDS, MAX_SECONDS, &number))
            return "--duration takes a number of seconds (0.000001 to 1000000000)";
        options->sampler.duration_ns = (uint64_t)(number * (double)NS_PER_S);
        return NULL;
    case SAMPLING_OPTION_MODE:
        return take_mode(options, value) ? NULL : "--mode takes wall, cpu or gil";
    case SAMPLING_OPTION_BLOCKING:
        options->sampler.target.blocking = true;
        return NULL;
    case SAMPLING_OPTION_NATIVE:
        options->sampler.target.native_boundaries = true;
        return NULL;
    case SAMPLING_OPTION_CHILDREN:
    case SAMPLING_OPTION_NO_CHILDREN:
        options->sampler.children = option == SAMPLING_OPTION_CHILDREN;
        return NULL;
    case SAMPLING_OPTION_CAPTURE:
        options->capture = value;
        return NULL;
    case SAMPLING_OPTION_NO_CAPTURE:
        options->no_capture = true;
        return NULL;
    case SAMPLING_OPTION_QUIET:
        options->quiet = true;
        return NULL;
    default:
        return "there is no such option, or its value is missing";
    }
}

const char *sampling_complete_options(struct sampling_options *options) {
    if (options->no_capture && options->capture != NULL)
        return "--capture says where to keep the capture, and --no-capture to keep none";
    return report_complete_options(&options->report);
}

static char *no_path(void) {
    cli_say("there is not enough memory");
    return NULL;
}

static char *named_capture(char *const *command, pid_t pid) {
    const char *name = NULL;
    size_t size_bytes = program_name(command, &name), length = 0;
    /* Neither a hidden file nor what `report` takes for an option (a login shell's "-sh"). */
    while (size_bytes > 0 && (*name == '-' || *name == '.')) {
        name++;
        size_bytes--;
    }
    while (length < size_bytes && (unsigned char)name[length] > ' ' && name[length] != '(')
        length++;
    if (length == 0) {
        name = "python";
        length = strlen(name);
    }
    if (length > 3 && strncmp(name + length - 3, ".py", 3) == 0)
        length -= 3;
    if (length > MAX_NAME_BYTES)
        length = MAX_NAME_BYTES;
    char *path = NULL;
    return asprintf(&path, "%.*s-%d.strobe", (int)length, name, (int)pid) >= 0 ? path : no_path();
}

/* A capture that nobody wants to keep is a file without a name, which is gone with strobe, however that ends. */
static char *unnamed_capture(void) {
    const char *folder = getenv("TMPDIR");
    char *path = NULL, *descriptor = NULL;
    if (folder == NULL || folder[0] == '\0')
        folder = "/tmp";
    if (asprintf(&path, "%s/strobe-XXXXXX", folder) < 0)
        return no_path();
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        cli_say("cannot make a temporary file in %s: %s (TMPDIR=FOLDER puts it elsewhere)", folder, strerror(errno));
    else
        (void)unlink(path);
    free(path);
    if (fd < 0)
        return NULL;
    return asprintf(&descriptor, "/proc/self/fd/%d", fd) >= 0 ? descriptor : no_path();
}

char *sampling_make_path(const struct sampling_options *options, char *const *command, pid_t pid) {
    if (options->no_capture)
        return unnamed_capture();
    if (options->capture == NULL)
        return named_capture(command, pid);
    char *path = strdup(options->capture);
    return path != NULL ? path : no_path();
}

/* Each process and each of its threads takes a few descriptors. */
static void allow_many_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static enum status sample(struct sampling *sampling, struct sample_sink *sink, const volatile sig_atomic_t *stop,
                          struct error *error) {
    struct sampler *sampler = NULL;
    TRY(sampler_new(&sampling->options->sampler, sink, &sampler, error));
    enum status status = sampling->begin(sampling->context, sampler, error);
    if (status == STATUS_OK)
        status = sampler_run(sampler, stop, error);
    sampling->process_count = sampler_process_count(sampler);
    enum status closed = sampler_free(sampler);
    return status == STATUS_OK ? closed : status;
}

static enum status open_capture(struct sampling *sampling, const struct capture_writer_options *options,
                                struct capture_writer **writer, struct error *error) {
    const struct sampling_options *how = sampling->options;
    struct stat info;
    struct error reason = {0};
    bool is_new = lstat(sampling->path, &info) != 0;
    enum status status = capture_writer_open(sampling->path, options, writer, &reason);
    /* An empty one may be another strobe's that has begun just now. */
    sampling->is_ours = is_new || (status == STATUS_OK && S_ISREG(info.st_mode) && info.st_size == 0);
    if (status != STATUS_OK)
        return error_set(error, status, "%s%s", reason.text,
                         how->no_capture || how->capture != NULL
                             ? ""
                             : " (--capture FILE puts it elsewhere, --no-capture keeps none)");
    status = report_check_output(&how->report, sampling->path, error);
    if (status != STATUS_OK)
        capture_writer_abandon(*writer);
    return status;
}

void sampling_remove_capture(const struct sampling *sampling) {
    if (sampling->is_ours)
        (void)unlink(sampling->path);
}

static void explain_writing(const struct sampling *sampling, const struct error *reason, struct error *error) {
    if (sampling->options->no_capture)
        (void)error_set(error, STATUS_FAILED, "%s (it is a temporary file: TMPDIR=FOLDER puts it elsewhere)",
                        reason->text);
    else
        (void)error_set(error, STATUS_FAILED, "%s: %s; what was sampled before is in it", sampling->path, reason->text);
}

enum status sampling_record(struct sampling *sampling, const volatile sig_atomic_t *stop, struct error *error) {
    static const enum capture_mode modes[] = {[SAMPLING_WALL] = CAPTURE_MODE_WALL,
                                              [SAMPLING_CPU] = CAPTURE_MODE_CPU,
                                              [SAMPLING_GIL] = CAPTURE_MODE_GIL,
                                              [SAMPLING_WAIT] = CAPTURE_MODE_CPU};
    const struct sampler_options *options = &sampling->options->sampler;
    struct recorder_options how = {sampling->rate_hz > 0 ? sampling->rate_hz : options->rate_hz,
                                   modes[options->target.mode], sampling->origin,
                                   sampling->options->progress && !sampling->options->quiet,
                                   sampling->options->quiet ? NULL : sampling->announcement};
    struct capture_writer_options writing = {.tick_ns = capture_tick_ns(how.rate_hz), .in_background = true};
    struct capture_writer *writer = NULL;
    allow_many_files();
    TRY(open_capture(sampling, &writing, &writer, error));
    struct recorder *recorder = recorder_new(writer, &how);
    enum status status = STATUS_FAILED;
    if (recorder != NULL)
        status = sample(sampling, recorder_sink(recorder), stop, error);
    recorder_free(recorder);
    if (status != STATUS_OK && capture_writer_error(writer)->status != STATUS_OK)
        explain_writing(sampling, capture_writer_error(writer), error);
    struct error ignored = {0};
    if (sampling->process_count == 0) {
        /* Not even an end: what was in the file stays. */
        capture_writer_abandon(writer);
        return status;
    }
    enum status closed = capture_writer_close(writer, status == STATUS_OK ? error : &ignored);
    return status == STATUS_OK ? closed : status;
}

int sampling_report(const struct sampling *sampling) {
    int exit_status = report_captures(&sampling->path, 1, &sampling->options->report);
    if (!sampling->options->no_capture && !sampling->options->quiet)
        cli_say("the capture is in %s ('strobe report %s' makes any other report of it)", sampling->path,
                sampling->path);
    return exit_status;
}
