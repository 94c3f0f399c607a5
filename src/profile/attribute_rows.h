/* The rows of an attribution, lines or functions: which there may be is known once, what is charged to them anew for
 * each attribution. Private to src/profile. */
#ifndef STROBE_PROFILE_ATTRIBUTE_ROWS_H
#define STROBE_PROFILE_ATTRIBUTE_ROWS_H

#include "base/digest.h"
#include "profile/attribute.h"

/* Zero-initialise it before use. */
struct row_table {
    struct attribute_row *rows;
    size_t count, capacity;
    struct digest_map index; /* -> row + 1 */
    uint32_t *of_frame;      /* frame -> row; meaningless for hidden frames */
    uint32_t *active_count;  /* row -> how many frames of the path being walked are it */
    uint32_t *used;          /* the rows that something was charged to, */
    size_t used_count;
    bool *is_used; /* and, by row, whether it is one of them */
};

/* A row for each line, or function, of the frames whose class, by frame index, is not hidden. */
enum status rows_make(struct row_table *table, const struct profile *profile, const uint8_t *frame_classes,
                      bool are_lines) MUST_USE;
/* The frame's row, to charge something to. */
struct attribute_row *rows_use(struct row_table *table, uint32_t frame);
/* Hands over, sorted, the rows that something was charged to, and forgets what was: at the cost of what was used. */
enum status rows_take(struct row_table *table, struct attribute_row **rows, size_t *count) MUST_USE;
void rows_release(struct row_table *table);

#endif
