#include "cli/cli.h"
#include "cli/diff_json.h"
#include "cli/reporting.h"

#include "terminal/diff_table.h"

#include <getopt.h>
#include <string.h>

static const char help[] = "Usage: strobe diff [OPTIONS] BEFORE AFTER\n"
                           "\n"
                           "Compares two captures, by line and by function; what changed most comes first. Two\n"
                           "programs that 'run' saw to their ends are compared as they are; else the figures of\n"
                           "AFTER are scaled to the time that BEFORE was sampled.\n"
                           "\n"
                           "  -f, --format NAME  table or json (default table)\n"
                           "  -o, --output FILE  write it there (default: standard output)\n"
                           "  --all              library code stands for itself; without it, it is charged\n"
                           "                     to the user's line that called it\n"
                           "  --as-is            do not scale\n"
                           "  --scale            scale, even what was run to its end\n"
                           "  --running          leave out the time in which threads waited\n"
                           "  --only GLOB        only files that match count as the user's code: a path, or how\n"
                           "                     one ends ('src/*', a.py); '*' stands for folders, too\n"
                           "  --exclude GLOB     files that match are charged to their callers; both may be repeated\n"
                           "  --lines N          show at most N lines (default 25)\n"
                           "  --measure NAME     rank by that alone (table): as 'strobe report --help' has it\n"
                           "  --help             this text\n";

enum { OPTION_RUNNING = 256, OPTION_AS_IS, OPTION_SCALE };

struct diff_options {
    struct report_options report;
    bool running;
    bool as_is;
    bool scale;
    const char *before;
    const char *after;
};

static const char *take_option(struct diff_options *options, int option, const char *value) {
    const char *problem = NULL;
    if (option == OPTION_RUNNING)
        options->running = true;
    else if (option == OPTION_AS_IS)
        options->as_is = true;
    else if (option == OPTION_SCALE)
        options->scale = true;
    else if (!report_take_option(&options->report, option, value, &problem))
        problem = "there is no such option, or its value is missing";
    return problem;
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct diff_options *options) {
    static const struct option known[] = {
        {"format", required_argument, NULL, 'f'},
        {"output", required_argument, NULL, 'o'},
        {"all", no_argument, NULL, REPORT_OPTION_ALL},
        {"running", no_argument, NULL, OPTION_RUNNING},
        {"as-is", no_argument, NULL, OPTION_AS_IS},
        {"scale", no_argument, NULL, OPTION_SCALE},
        {"only", required_argument, NULL, REPORT_OPTION_ONLY},
        {"exclude", required_argument, NULL, REPORT_OPTION_EXCLUDE},
        {"lines", required_argument, NULL, REPORT_OPTION_LINES},
        {"measure", required_argument, NULL, REPORT_OPTION_MEASURE},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "hf:o:", known, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return cli_finish_output();
        }
        const char *problem = take_option(options, option, optarg);
        if (problem != NULL)
            return cli_usage_error("diff", "%s: '%s'", problem, cli_wrong_word(argv));
    }
    if (argc - optind != 2)
        return cli_usage_error("diff", "two captures are compared, %d given", argc - optind);
    if (options->as_is && options->scale)
        return cli_usage_error("diff", "--as-is and --scale exclude each other");
    report_complete_format(&options->report);
    if (options->report.format != NULL && strcmp(options->report.format->name, "json") != 0)
        return cli_usage_error("diff", "a comparison is a table or json, not %s", options->report.format->name);
    options->before = argv[optind];
    options->after = argv[optind + 1];
    return -1;
}

/* A program that does its work in half the time would be no faster if that were scaled. */
static bool is_whole_run(const struct profile *profile) {
    const struct profile_process *first = profile->processes;
    return profile->process_count > 0 && first->origin == CAPTURE_ORIGIN_RUN && first->ended;
}

static enum status write_comparison(const struct profile *before, const struct profile *after,
                                    const struct diff_options *how, FILE *stream, struct error *error) {
    const struct report_options *options = &how->report;
    struct attribute_options attribute = report_attribute_options(options);
    bool as_is = how->as_is || (!how->scale && is_whole_run(before) && is_whole_run(after));
    if (options->format != NULL)
        return diff_json_write(before, after, &attribute, as_is, stream, error);
    struct source_cache *sources = source_cache_new(report_open_source, NULL, SOURCE_PYTHON);
    struct diff_table_options table = {&attribute,
                                       sources,
                                       options->lines,
                                       report_terminal_width(stream),
                                       cli_wants_colour(stream),
                                       as_is,
                                       options->has_measure ? &options->measure : NULL};
    enum status status = diff_table_write(before, after, &table, stream, error);
    source_cache_free(sources);
    return status;
}

static enum status compare(const struct diff_options *options, struct profile *before, struct profile *after,
                           struct error *damage, struct error *error) {
    const struct profile_load_options how = {.without_idle = options->running};
    struct output_file file;
    if (before == NULL || after == NULL)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    TRY(report_check_output(&options->report, options->before, error));
    TRY(report_check_output(&options->report, options->after, error));
    TRY(report_load_capture(before, options->before, &how, damage, error));
    TRY(report_load_capture(after, options->after, &how, damage, error));
    TRY(report_check_measure(&options->report, before, error));
    TRY(report_check_measure(&options->report, after, error));
    TRY(output_open(&file, options->report.output, error));
    enum status status = output_explain(&file, write_comparison(before, after, options, file.stream, error), error);
    enum status closed = output_close(&file, status == STATUS_OK, error);
    return status == STATUS_OK ? closed : status;
}

int command_diff(int argc, char **argv) {
    struct diff_options options = {0};
    struct error error = {0}, damage = {0};
    int ended = parse(argc, argv, &options);
    if (ended >= 0)
        return ended;
    struct profile *before = profile_new(), *after = profile_new();
    enum status status = compare(&options, before, after, &damage, &error);
    profile_free(before);
    profile_free(after);
    if (status != STATUS_OK)
        return cli_fail(&error);
    int finished = cli_finish_output();
    return damage.status != STATUS_OK ? cli_fail(&damage) : finished;
}
