#include "cli/reporting.h"

#include "cli/cli.h"
#include "terminal/report_table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINES = 1000000 };

const char report_options_help[] =
    "  -f, --format NAME  table, json, html, collapsed, speedscope, pprof, gecko,\n"
    "                     chrome, pstats or svg (default: as the output's name\n"
    "                     says, else table)\n"
    "  -o, --output FILE  write the report there (-: standard output; default: that, but\n"
    "                     standard error of 'run')\n"
    "  --all              library code stands for itself; without it, it is charged\n"
    "                     to the user's line that called it\n"
    "  --idle             count the time in which threads waited, too, where it was\n"
    "                     sampled from outside\n"
    "  --only GLOB        only files that match count as the user's code: a path, or how\n"
    "                     one ends ('src/*', a.py); '*' stands for folders, too\n"
    "  --exclude GLOB     files that match are charged to their callers; both may be repeated\n"
    "  --lines N          show at most N lines of a file (table; default 25)\n"
    "  --threads          each thread by itself (table, collapsed)\n"
    "  --measure NAME     what the table ranks lines by, and what formats show that show\n"
    "                     one thing (collapsed, svg, ...): cpu (default), wall, wait,\n"
    "                     gil, python, native, kernel, samples; of memory: alloc,\n"
    "                     peak, live, copy, temporary, python_bytes, alloc_count,\n"
    "                     live_count\n";

static bool take_format(struct report_options *options, const char *name) {
    options->format = export_find_name(name);
    options->wants_table = strcmp(name, "table") == 0;
    return options->format != NULL || options->wants_table;
}

bool report_take_option(struct report_options *options, int option, const char *value, const char **problem) {
    long number = 0;
    *problem = NULL;
    switch (option) {
    case 'f':
        if (!take_format(options, value))
            *problem = "there is no such format";
        return true;
    case 'o':
        options->output = value;
        return true;
    case REPORT_OPTION_ALL:
        options->all = true;
        return true;
    case REPORT_OPTION_IDLE:
        options->idle = true;
        return true;
    case REPORT_OPTION_ONLY:
    case REPORT_OPTION_EXCLUDE: {
        const char **globs = option == REPORT_OPTION_ONLY ? options->only : options->exclude;
        size_t *count = option == REPORT_OPTION_ONLY ? &options->only_count : &options->exclude_count;
        if (*count == REPORT_MAX_GLOBS)
            *problem = "there are too many patterns";
        else
            globs[(*count)++] = value;
        return true;
    }
    case REPORT_OPTION_LINES:
        if (!cli_parse_number(value, 1, MAX_LINES, &number))
            *problem = "--lines takes a number from 1 on";
        options->lines = (size_t)number;
        return true;
    case REPORT_OPTION_THREADS:
        options->threads = true;
        return true;
    case REPORT_OPTION_MEASURE:
        options->has_measure = measure_find(value, &options->measure);
        if (!options->has_measure)
            *problem = "there is no such measure";
        return true;
    default:
        return false;
    }
}

void report_complete_format(struct report_options *options) {
    if (options->format == NULL && !options->wants_table && options->output != NULL)
        options->format = export_find_path(options->output);
}

const char *report_complete_options(struct report_options *options) {
    report_complete_format(options);
    if (options->has_measure && options->format != NULL && !options->format->takes_measure)
        return "--measure is for the table and formats that show one: collapsed, svg, speedscope, pprof, pstats, "
               "gecko, "
               "chrome";
    return NULL;
}

enum status report_check_measure(const struct report_options *options, const struct profile *profile,
                                 struct error *error) {
    char known[300] = "";
    size_t used = 0;
    if (!options->has_measure || profile_has(profile, options->measure))
        return STATUS_OK;
    for (enum measure i = 0; i < MEASURE_SHOWN; i++)
        if (profile_has(profile, i) && used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "", measure_word(i));
    return error_set(error, STATUS_USAGE, "the capture does not have '%s'; it has %s", measure_word(options->measure),
                     used > 0 ? known : "no measures at all");
}

enum status report_open_source(void *context, const char *path, int *fd) {
    (void)context;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return *fd >= 0 ? STATUS_OK : STATUS_NOT_FOUND;
}

static enum status line_of_source(void *context, const char *path, int32_t number, const char **text,
                                  size_t *size_bytes) {
    return source_line(context, path, number, text, size_bytes);
}

size_t report_terminal_width(FILE *stream) {
    struct winsize size;
    if (!isatty(fileno(stream)) || ioctl(fileno(stream), TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

struct attribute_options report_attribute_options(const struct report_options *options) {
    return (struct attribute_options){.all = options->all,
                                      .only = options->only,
                                      .only_count = options->only_count,
                                      .exclude = options->exclude,
                                      .exclude_count = options->exclude_count,
                                      .thread = ATTRIBUTE_ANY,
                                      .process = ATTRIBUTE_ANY};
}

static enum status write_report(const struct profile *profile, const struct report_options *options, FILE *stream,
                                struct error *error) {
    struct attribute_options attribute = report_attribute_options(options);
    struct source_cache *sources = source_cache_new(report_open_source, NULL, SOURCE_PYTHON);
    if (sources == NULL)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    enum status status;
    if (options->format != NULL) {
        struct export_options export = {&attribute,     line_of_source,
                                        sources,        options->has_measure ? &options->measure : NULL,
                                        !options->idle, options->threads};
        status = options->format->write(profile, &export, stream, error);
    } else {
        struct report_table_options table = {.attribute = &attribute,
                                             .source = sources,
                                             .lines = options->lines,
                                             .width = report_terminal_width(stream),
                                             .colour = cli_wants_colour(stream),
                                             .main = options->has_measure ? &options->measure : NULL,
                                             .with_idle = options->idle};
        status = options->threads ? report_table_write_threads(profile, &table, stream, error)
                                  : report_table_write(profile, &table, stream, error);
    }
    source_cache_free(sources);
    return status;
}

/* Formats that show waiting as such are given all; in the others time is CPU time unless the user wants both, or the
 * other. */
static bool leaves_out_idle(const struct report_options *options) {
    if (options->has_measure && (options->measure == MEASURE_WALL_NS || options->measure == MEASURE_WAIT_NS ||
                                 options->measure == MEASURE_GIL_WAIT_NS))
        return false;
    return !options->idle && options->format != NULL && strcmp(options->format->name, "json") != 0 &&
           strcmp(options->format->name, "html") != 0;
}

enum status report_load_capture(struct profile *profile, const char *path, const struct profile_load_options *how,
                                struct error *damage, struct error *error) {
    size_t processes_before = profile->process_count;
    enum status status = profile_add_capture(profile, path, how, error);
    if (status != STATUS_DAMAGED || profile->process_count == processes_before)
        return status;
    cli_note_damage(damage, error);
    return STATUS_OK;
}

enum status report_check_output(const struct report_options *options, const char *capture, struct error *error) {
    struct stat from, to;
    if (options->output == NULL || stat(options->output, &to) != 0 || stat(capture, &from) != 0 ||
        !S_ISREG(to.st_mode) || from.st_dev != to.st_dev || from.st_ino != to.st_ino)
        return STATUS_OK;
    return error_set(error, STATUS_USAGE, "%s is the capture, which a report would replace: give -o another name",
                     options->output);
}

static enum status load(struct profile *profile, const char *const *paths, size_t count,
                        const struct report_options *options, struct error *damage, struct error *error) {
    struct profile_load_options how = {.without_idle = leaves_out_idle(options),
                                       .with_samples = options->format != NULL && options->format->wants_samples};
    for (size_t i = 0; i < count; i++) {
        TRY(report_check_output(options, paths[i], error));
        enum status status = report_load_capture(profile, paths[i], &how, damage, error);
        if (status != STATUS_DAMAGED || count == 1)
            TRY(status);
        else
            cli_note_damage(damage, error);
    }
    if (profile->process_count > 0 || damage->status == STATUS_OK)
        return STATUS_OK;
    *error = *damage;
    return error->status;
}

static enum status open_output(struct output_file *file, const struct report_options *options, struct error *error) {
    if (!options->to_stderr || options->output != NULL)
        return output_open(file, options->output, error);
    *file = (struct output_file){.stream = stderr};
    return STATUS_OK;
}

static bool is_for_terminal(const struct report_options *options) {
    if (options->output != NULL && strcmp(options->output, "-") != 0)
        return false;
    return isatty(options->to_stderr && options->output == NULL ? STDERR_FILENO : STDOUT_FILENO) == 1;
}

int report_captures(const char *const *paths, size_t count, const struct report_options *options) {
    struct error error = {0}, damage = {0};
    struct output_file file;
    struct profile *profile = profile_new();
    if (profile == NULL)
        return cli_fail(&(struct error){STATUS_FAILED, "there is not enough memory"});
    enum status status = load(profile, paths, count, options, &damage, &error);
    if (status == STATUS_OK)
        status = report_check_measure(options, profile, &error);
    if (status == STATUS_OK && options->format != NULL && options->format->is_binary && is_for_terminal(options))
        status =
            error_set(&error, STATUS_USAGE, "%s is not for a terminal: give a file with -o", options->format->name);
    if (status == STATUS_OK)
        status = open_output(&file, options, &error);
    if (status == STATUS_OK) {
        status = output_explain(&file, write_report(profile, options, file.stream, &error), &error);
        enum status closed = output_close(&file, status == STATUS_OK, &error);
        status = status == STATUS_OK ? closed : status;
    }
    profile_free(profile);
    if (status != STATUS_OK)
        return cli_fail(&error);
    int finished = cli_finish_output();
    return damage.status != STATUS_OK ? cli_fail(&damage) : finished;
}
