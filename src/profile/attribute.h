/* Which line, function, thread or process what was measured is charged to.
 *
 * *User code* is what is no library code (profile_frame.is_library). A stack's measures are charged as *self* to its
 * innermost frame in user code, and as *total* to each line (or function) of user code in it, once however often it
 * recurs. A stack that has no user code at all stands for itself: its innermost frame has the self (but frames of the
 * import machinery leave it to the line that imports), all its frames the total. With `all` every stack stands for
 * itself. Native functions are never told from the Python line that called them, but where there is none; `natives` has
 * them apart. */
#ifndef STROBE_PROFILE_ATTRIBUTE_H
#define STROBE_PROFILE_ATTRIBUTE_H

#include "profile/line_memory.h"
#include "profile/profile.h"

enum { ATTRIBUTE_ANY = -1 };

struct attribute_options {
    bool all;                /* library code stands for itself */
    const char *const *only; /* globs: only files that match one count as user code; stacks without are left out */
    size_t only_count;
    const char *const *exclude; /* globs: files that match are charged to their callers, also with `all` */
    size_t exclude_count;
    int64_t thread;  /* index of the only thread to count, or ATTRIBUTE_ANY */
    int64_t process; /* index of the only process to count, or ATTRIBUTE_ANY */
};

struct attribute_row {
    const char *file;
    const char *function;
    const char *qualname;
    int32_t line;       /* of lines; -1 in functions, and where it is unknown */
    int32_t first_line; /* of the function */
    bool is_library;
    bool is_native; /* no Python: native code that nothing called that could be charged */
    uint32_t taken; /* bit by measure: it was taken of a process that has this line in a stack */
    uint64_t self[MEASURE_COUNT];
    uint64_t total[MEASURE_COUNT];
};

/* What was spent in a native function, innermost, on behalf of a line. Where CPU time is known in parts, its native
 * part alone. */
struct attribute_native {
    const char *file; /* of the line that it is charged to, as in lines */
    int32_t line;
    const char *function; /* "" when its name is not known */
    const char *library;  /* path of the file it is in */
    uint32_t taken;       /* as above */
    uint64_t self[MEASURE_COUNT];
};

/* What a frame is to an attribution. A stack is charged to its innermost frame of the highest class in it; with `all`
 * what is above FRAME_NATIVE is one class. */
enum frame_class { FRAME_HIDDEN, FRAME_NATIVE, FRAME_IMPORT, FRAME_LIBRARY, FRAME_USER };

/* Of threads, or of processes: measures of each that may have been counted, which are all of them or just one. */
struct attribute_shares {
    size_t first; /* the index of the first one */
    size_t count;
    uint64_t (*sums)[MEASURE_COUNT];
};

/* Rows are sorted by file, then line (lines) or first line and name (functions). Texts belong to the profile. */
struct attribution {
    struct attribute_row *lines; /* one for each file × line */
    size_t line_count;
    struct attribute_row *functions; /* one for each file × function × first line */
    size_t function_count;
    struct attribute_native *natives; /* one for each line × native function; sorted by file and line */
    size_t native_count;
    struct attribute_native *native_functions; /* the same summed up by function: file "", line -1 */
    size_t native_function_count;
    struct line_memory memory;        /* what lines held over time; of threads by themselves there is none */
    uint64_t sums[MEASURE_COUNT];     /* of all lines' self */
    uint64_t left_out[MEASURE_COUNT]; /* of stacks that `only` and `exclude` left nothing of, and of empty stacks */
    uint32_t left_out_taken;          /* bit by measure, as in the rows */
    uint8_t *classes; /* by stack index, enum frame_class of its innermost frame as called there; NULL of one thread */
    struct attribute_shares threads, processes;
};

/* Zero-initialised options with thread and process = ATTRIBUTE_ANY are the defaults, as is NULL. */
enum status attribute_profile(const struct profile *profile, const struct attribute_options *options,
                              struct attribution *attribution, struct error *error) MUST_USE;
/* The same in two steps, for many threads one after the other: first what does not depend on the thread, then each at
 * the cost of what it did. The profile and the options are to outlive the attributor; of these `thread` does not count.
 * After a failure the attributor can only be freed. */
struct attributor;
enum status attributor_new(const struct profile *profile, const struct attribute_options *options,
                           struct attributor **attributor, struct error *error) MUST_USE;
void attributor_free(struct attributor *attributor);
/* Whether the thread with this index did anything. */
bool attributor_has_thread(const struct attributor *attributor, size_t thread);
/* `thread`: index of the only thread to count, or ATTRIBUTE_ANY. */
enum status attributor_run(struct attributor *attributor, int64_t thread, struct attribution *attribution,
                           struct error *error) MUST_USE;

/* By measure, of the thread or process with this index; zeros when it was not counted. */
const uint64_t *attribute_share(const struct attribute_shares *shares, size_t number);
void attribution_release(struct attribution *attribution);
/* The native functions of a line; NULL or any pointer when *count is 0. */
const struct attribute_native *attribution_natives_of(const struct attribution *attribution, const char *file,
                                                      int32_t line, size_t *count);
/* Whether a glob means a path: `*` also matches '/'; a glob that begins with neither '/' nor '*' may begin after any
 * '/'. */
bool attribute_glob_matches(const char *glob, const char *path);

#endif
