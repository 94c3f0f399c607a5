/* The part of the HTML report's data that is memory over time. Private to html*.c. */
#ifndef STROBE_EXPORT_HTML_MEMORY_H
#define STROBE_EXPORT_HTML_MEMORY_H

#include "base/json_stream.h"
#include "export/export.h"

/* "memory": what src/web/model.js says. Nothing when no process's memory was taken. */
enum status html_put_memory(struct json_stream *json, const struct profile *profile,
                            const struct export_options *options, struct error *error) MUST_USE;

#endif
