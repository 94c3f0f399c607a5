#include "export/export.h"

#include <string.h>

const struct export_format export_formats[] = {
    {.name = "json", .endings = {".json"}, .write = export_write_json},
    {.name = "html", .endings = {".html", ".htm"}, .write = export_write_html},
    {.name = "collapsed", .endings = {".collapsed", ".folded"}, .takes_measure = true, .write = export_write_collapsed},
    {.name = "speedscope",
     .endings = {".speedscope.json", ".speedscope"},
     .wants_samples = true,
     .takes_measure = true,
     .write = export_write_speedscope},
    {.name = "pprof",
     .endings = {".pb.gz", ".pprof"},
     .is_binary = true,
     .takes_measure = true,
     .write = export_write_pprof},
    {.name = "gecko",
     .endings = {".gecko.json", ".gecko"},
     .wants_samples = true,
     .takes_measure = true,
     .write = export_write_gecko},
    {.name = "chrome",
     .endings = {".trace.json", ".chrome.json", ".trace"},
     .wants_samples = true,
     .takes_measure = true,
     .write = export_write_chrome},
    {.name = "pstats",
     .endings = {".pstats", ".prof"},
     .is_binary = true,
     .takes_measure = true,
     .write = export_write_pstats},
    {.name = "svg", .endings = {".svg"}, .takes_measure = true, .write = export_write_svg},
};

const size_t export_format_count = sizeof export_formats / sizeof export_formats[0];

const struct export_format *export_find_name(const char *name) {
    for (size_t i = 0; i < export_format_count; i++)
        if (strcmp(export_formats[i].name, name) == 0)
            return &export_formats[i];
    return NULL;
}

static bool ends_with(const char *text, const char *ending) {
    size_t text_size = strlen(text);
    size_t ending_size = strlen(ending);
    return text_size >= ending_size && strcmp(text + text_size - ending_size, ending) == 0;
}

const struct export_format *export_find_path(const char *path) {
    const struct export_format *found = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < export_format_count; i++)
        for (size_t j = 0; j < EXPORT_MAX_ENDINGS && export_formats[i].endings[j] != NULL; j++) {
            const char *ending = export_formats[i].endings[j];
            if (strlen(ending) > longest && ends_with(path, ending)) {
                found = &export_formats[i];
                longest = strlen(ending);
            }
        }
    return found;
}

enum measure export_measure(const struct profile *profile, const struct export_options *options) {
    return options != NULL && options->measure != NULL ? *options->measure : profile_main_measure(profile);
}

enum status export_finish(enum status status, FILE *stream, struct error *error) {
    if (status != STATUS_OK)
        return error_set(error, status, "no memory left for the report");
    if (ferror(stream))
        return error_set(error, STATUS_FAILED, "the report could not be written");
    return STATUS_OK;
}
