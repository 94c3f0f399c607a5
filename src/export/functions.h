/* The functions of a profile: its frames without their lines. */
#ifndef STROBE_EXPORT_FUNCTIONS_H
#define STROBE_EXPORT_FUNCTIONS_H

#include "profile/profile.h"

/* Two frames are of one function when kind, file, co_name and first line agree, and the qualified name if that counts.
 * Numbers are dense; 0 is 'none' (the function of frame 0). */
struct functions {
    uint32_t *of_frame;  /* by frame */
    uint32_t *one_frame; /* by function: a frame of it */
    size_t count;        /* with function 0 */
};

enum status functions_init(struct functions *functions, const struct profile *profile, bool by_qualname) MUST_USE;
void functions_release(struct functions *functions);

/* The files of a profile, numbered densely in the order of their frames. */
struct files {
    uint32_t *of_frame; /* by frame */
    const char **paths; /* by file */
    bool *is_library;   /* by file */
    size_t count;
};

enum status files_init(struct files *files, const struct profile *profile) MUST_USE;
void files_release(struct files *files);

#endif
