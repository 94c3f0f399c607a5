/* What frames, threads and whole programs are called. */
#ifndef STROBE_EXPORT_NAMES_H
#define STROBE_EXPORT_NAMES_H

#include "base/buffer.h"
#include "base/json_stream.h"
#include "profile/profile.h"

/* The function as its file's reader knows it, with its class: "C.leaf"; for frames that are no Python function what
 * they stand for: "<native>". Never "". */
const char *name_of_frame(const struct profile_frame *frame);
/* co_name alone, likewise. */
const char *name_of_function(const struct profile_frame *frame);
/* "MainThread (42)"; processes are told apart, "[4242] MainThread (42)", when there are several. */
enum status name_append_thread(struct buffer *buffer, const struct profile *profile, uint32_t thread) MUST_USE;
/* The process's command line, with blanks between; "..." stands for what is beyond some thousand bytes. */
enum status name_append_command(struct buffer *buffer, const struct profile_process *process) MUST_USE;
/* "3.14.0", "3.15.0a2"; "" for 0. */
enum { NAME_VERSION_BYTES = 32 };
void name_format_version(uint32_t version_hex, char text[static NAME_VERSION_BYTES]);
/* "2026-11-20T10:00:00Z" */
enum { NAME_TIME_BYTES = 32 };
void name_format_time(uint64_t unix_ns, char text[static NAME_TIME_BYTES]);

/* Room for the longest: two texts of a capture, of whose bytes each may be shown as four. */
enum { NAME_LIMIT_BYTES = 1 << 20 };

#endif
