#include "terminal/source.h"

#include "terminal/python_source.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SOURCE_BYTES = 64 << 20 };

struct source_file {
    struct source_file *next;
    char *path;
    char *text; /* NULL when the file cannot be had */
    size_t size_bytes;
    size_t *line_starts;
    size_t line_count;
};

struct source_cache {
    source_open_fn *open;
    void *context;
    enum source_files which;
    struct source_file *files; /* the one asked for last comes first */
};

struct source_cache *source_cache_new(source_open_fn *open, void *context, enum source_files which) {
    struct source_cache *cache = calloc(1, sizeof *cache);
    if (cache != NULL) {
        cache->open = open;
        cache->context = context;
        cache->which = which;
    }
    return cache;
}

static void free_file(struct source_file *file) {
    free(file->path);
    free(file->text);
    free(file->line_starts);
    free(file);
}

void source_cache_free(struct source_cache *cache) {
    while (cache != NULL && cache->files != NULL) {
        struct source_file *next = cache->files->next;
        free_file(cache->files);
        cache->files = next;
    }
    free(cache);
}

static void forget_text(struct source_file *file) {
    free(file->text);
    file->text = NULL;
    file->size_bytes = 0;
}

static enum status read_all(int fd, enum source_files which, struct source_file *file) {
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MAX_SOURCE_BYTES)
        return STATUS_NOT_FOUND;
    file->text = malloc((size_t)info.st_size + 1);
    if (file->text == NULL)
        return STATUS_FAILED;
    while (file->size_bytes < (size_t)info.st_size) {
        ssize_t got = read(fd, file->text + file->size_bytes, (size_t)info.st_size - file->size_bytes);
        if (got <= 0)
            break;
        file->size_bytes += (size_t)got;
    }
    if (which == SOURCE_PYTHON && !python_source_is(file->path, &info, file->text, file->size_bytes)) {
        forget_text(file);
        return STATUS_NOT_FOUND;
    }
    return STATUS_OK;
}

static enum status index_lines(struct source_file *file) {
    size_t count = 1;
    for (size_t i = 0; i < file->size_bytes; i++)
        count += file->text[i] == '\n';
    file->line_starts = malloc((count + 1) * sizeof file->line_starts[0]);
    if (file->line_starts == NULL)
        return STATUS_FAILED;
    file->line_starts[file->line_count++] = 0;
    for (size_t i = 0; i < file->size_bytes; i++)
        if (file->text[i] == '\n' && i + 1 < file->size_bytes)
            file->line_starts[file->line_count++] = i + 1;
    bool has_last_newline = file->size_bytes > 0 && file->text[file->size_bytes - 1] == '\n';
    file->line_starts[file->line_count] = file->size_bytes + !has_last_newline;
    return STATUS_OK;
}

/* A file that cannot be read is remembered too, so that it is not tried for every frame. */
static enum status load(struct source_cache *cache, const char *path, struct source_file **result) {
    struct source_file *file = calloc(1, sizeof *file);
    int fd = -1;
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return STATUS_FAILED;
    }
    if (cache->open(cache->context, path, &fd) == STATUS_OK) {
        enum status status = read_all(fd, cache->which, file);
        (void)close(fd);
        if (status == STATUS_OK)
            status = index_lines(file);
        if (status == STATUS_FAILED) {
            free_file(file);
            return status;
        }
    }
    file->next = cache->files;
    cache->files = file;
    *result = file;
    return STATUS_OK;
}

static enum status find_file(struct source_cache *cache, const char *path, struct source_file **result) {
    for (struct source_file **link = &cache->files; *link != NULL; link = &(*link)->next) {
        struct source_file *file = *link;
        if (strcmp(file->path, path) != 0)
            continue;
        *link = file->next;
        file->next = cache->files;
        cache->files = file;
        *result = file;
        return STATUS_OK;
    }
    return load(cache, path, result);
}

enum status source_line(struct source_cache *cache, const char *path, int32_t number, const char **text,
                        size_t *size_bytes) {
    struct source_file *file = NULL;
    if (number < 1)
        return STATUS_NOT_FOUND;
    TRY(find_file(cache, path, &file));
    if ((size_t)number > file->line_count)
        return STATUS_NOT_FOUND;
    size_t start = file->line_starts[number - 1];
    size_t end = file->line_starts[number] - 1;
    if (end > start && file->text[end - 1] == '\r')
        end--;
    *text = file->text + start;
    *size_bytes = end - start;
    return STATUS_OK;
}
