#include "cli/reporting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Devices and pipes cannot be renamed into place, nor can what is open already under another name (/dev/stdout): root
 * would replace that name for everyone. They are written to directly. */
static bool is_special(const char *path) {
    struct stat info;
    bool is_descriptor = strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
    return is_descriptor || (stat(path, &info) == 0 && !S_ISREG(info.st_mode));
}

/* The name beside which to write: a link to a file stays, and the file is replaced. */
static char *make_temporary(const char *path) {
    char *real = realpath(path, NULL), *temporary = NULL;
    if (asprintf(&temporary, "%s.XXXXXX", real != NULL ? real : path) < 0)
        temporary = NULL;
    free(real);
    return temporary;
}

/* Puts the temporary file into its place, which is its name without what make_temporary added. */
static bool place(const struct output_file *file) {
    char *real = strndup(file->temporary, strlen(file->temporary) - strlen(".XXXXXX"));
    bool placed = real != NULL && rename(file->temporary, real) == 0;
    free(real);
    return placed;
}

enum status output_open(struct output_file *file, const char *path, struct error *error) {
    if (path != NULL && strcmp(path, "-") == 0)
        path = NULL;
    *file = (struct output_file){.path = path, .stream = stdout};
    if (path == NULL)
        return STATUS_OK;
    if (is_special(path)) {
        /* Standard output may be a file that has something in it. */
        file->stream = fopen(path, "ae");
        return file->stream != NULL ? STATUS_OK
                                    : error_set(error, STATUS_FAILED, "cannot write %s: %s", path, strerror(errno));
    }
    file->temporary = make_temporary(path);
    if (file->temporary == NULL)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    int fd = mkostemp(file->temporary, O_CLOEXEC);
    file->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file->stream != NULL) {
        /* mkostemp makes files that only their owner can read. */
        mode_t mask = umask(0);
        (void)umask(mask);
        (void)fchmod(fd, 0666 & ~mask);
        return STATUS_OK;
    }
    enum status status = error_set(error, STATUS_FAILED, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    free(file->temporary);
    file->temporary = NULL;
    return status;
}

enum status output_explain(const struct output_file *file, enum status status, struct error *error) {
    int number = errno;
    if (status == STATUS_OK || !ferror(file->stream))
        return status;
    if (number == EPIPE && file->path == NULL) {
        clearerr(file->stream);
        return STATUS_OK;
    }
    return error_set(error, status, "cannot write %s: %s", file->path != NULL ? file->path : "the output",
                     strerror(number));
}

enum status output_close(struct output_file *file, bool complete, struct error *error) {
    if (file->path == NULL)
        return STATUS_OK;
    bool written = fclose(file->stream) == 0;
    if (file->temporary == NULL)
        return written ? STATUS_OK
                       : error_set(error, STATUS_FAILED, "cannot write %s: %s", file->path, strerror(errno));
    enum status status = STATUS_OK;
    if (!complete)
        (void)unlink(file->temporary);
    else if (!written || !place(file)) {
        status = error_set(error, STATUS_FAILED, "cannot write %s: %s", file->path, strerror(errno));
        (void)unlink(file->temporary);
    }
    free(file->temporary);
    return status;
}
