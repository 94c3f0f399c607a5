/* Gathers the native functions of an attribution. Private to src/profile. */
#ifndef STROBE_PROFILE_NATIVES_H
#define STROBE_PROFILE_NATIVES_H

#include "base/digest.h"
#include "profile/attribute.h"

/* Zero-initialise it before use. */
struct native_table {
    struct attribute_native *rows;
    size_t count, capacity;
    struct digest_map index; /* -> row + 1 */
};

/* Whether a frame is a function of a library that is known. */
bool native_is_known(const struct profile_frame *frame);
/* The row of this function under the line that it is charged to; valid until the next call. */
enum status native_find(struct native_table *table, const struct profile_frame *frame, const char *file, int32_t line,
                        struct attribute_native **row) MUST_USE;
/* Hands the rows over, sorted, and sums them up by function. has_parts: of CPU time only the native part counts. */
enum status native_finish(struct native_table *table, bool has_parts, struct attribution *attribution) MUST_USE;
void native_release(struct native_table *table);

#endif
