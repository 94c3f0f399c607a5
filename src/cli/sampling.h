/* What `attach` and `run` have in common: the options of sampling from outside, and the recording into a capture. */
#ifndef STROBE_CLI_SAMPLING_H
#define STROBE_CLI_SAMPLING_H

#include "capture/records.h"
#include "cli/reporting.h"
#include "sampler/sampler.h"

struct sampling_options {
    struct sampler_options sampler;
    struct report_options report;
    const char *capture; /* NULL: by the program's name */
    bool no_capture;
    bool quiet;
    bool progress; /* say on a terminal what is going on */
};

/* Their values begin at SAMPLING_OPTION_FIRST. */
enum sampling_option {
    SAMPLING_OPTION_FIRST = 2000,
    SAMPLING_OPTION_MODE = SAMPLING_OPTION_FIRST,
    SAMPLING_OPTION_BLOCKING,
    SAMPLING_OPTION_NATIVE,
    SAMPLING_OPTION_CHILDREN,
    SAMPLING_OPTION_NO_CHILDREN,
    SAMPLING_OPTION_CAPTURE,
    SAMPLING_OPTION_NO_CAPTURE,
    SAMPLING_OPTION_QUIET,
};
/* clang-format off */
#define SAMPLING_SHORT_OPTIONS "hf:o:r:d:"
#define SAMPLING_LONG_OPTIONS                                              \
    REPORT_LONG_OPTIONS,                                                   \
    {"rate", required_argument, NULL, 'r'},                                \
    {"duration", required_argument, NULL, 'd'},                            \
    {"mode", required_argument, NULL, SAMPLING_OPTION_MODE},               \
    {"blocking", no_argument, NULL, SAMPLING_OPTION_BLOCKING},             \
    {"native", no_argument, NULL, SAMPLING_OPTION_NATIVE},                 \
    {"native-boundaries", no_argument, NULL, SAMPLING_OPTION_NATIVE},      \
    {"children", no_argument, NULL, SAMPLING_OPTION_CHILDREN},             \
    {"no-children", no_argument, NULL, SAMPLING_OPTION_NO_CHILDREN},       \
    {"capture", required_argument, NULL, SAMPLING_OPTION_CAPTURE},         \
    {"no-capture", no_argument, NULL, SAMPLING_OPTION_NO_CAPTURE},         \
    {"quiet", no_argument, NULL, SAMPLING_OPTION_QUIET},                   \
    {"help", no_argument, NULL, 'h'}
/* clang-format on */

void sampling_init_options(struct sampling_options *options);
/* Writes the lines of --help for these options; returns the exit status. */
int sampling_finish_help(void);
/* Takes one of these options. What is wrong with it, or NULL. */
const char *sampling_take_option(struct sampling_options *options, int option, const char *value);

/* After the last option: as report_complete_options. */
const char *sampling_complete_options(struct sampling_options *options);

/* Whose path the capture has: as asked for, else NAME-PID.strobe in the current folder, NAME being what the command
 * runs. The caller frees it. NULL, and said so, when there is none to be had. */
char *sampling_make_path(const struct sampling_options *options, char *const *command, pid_t pid);

/* One recording. */
struct sampling {
    const struct sampling_options *options;
    const char *path;
    double rate_hz; /* of the agent's clocks; 0: the sampler's is the only one */
    enum capture_origin origin;
    const char *announcement; /* as recorder_options' */
    /* Gives the sampler its processes. */
    enum status (*begin)(void *context, struct sampler *sampler, struct error *error);
    void *context;
    uint32_t process_count; /* how many were sampled */
    bool is_ours;           /* the file was made by this recording, or was empty */
};

/* Records until there is a reason to stop. */
enum status sampling_record(struct sampling *sampling, const volatile sig_atomic_t *stop, struct error *error) MUST_USE;

/* For when there is nothing in the capture. What was there before stays: an older capture, which is not overwritten
 * before a process is sampled, or a device. */
void sampling_remove_capture(const struct sampling *sampling);

/* Makes the report, and says where the capture is or removes it. Returns the exit status of that. */
int sampling_report(const struct sampling *sampling);

#endif
