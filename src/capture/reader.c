/* The file and its chunks. */
#include "capture/reader.h"

#include "base/bytes.h"
#include "capture/reader_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum { SCAN_BYTES = 1 << 16 };

/* A file, or bytes in memory. */
struct source {
    int descriptor; /* -1: in memory */
    const uint8_t *bytes;
    uint64_t size_bytes;
};

struct chunk_header {
    uint8_t type;
    uint8_t flags;
    uint32_t sequence;
    uint32_t raw_bytes;
    uint32_t stored_bytes;
    uint32_t epoch;
    uint64_t checksum;
};

struct scan {
    const struct source *source;
    struct reader *reader;
    uint64_t at; /* where the next chunk should begin */
    uint64_t next_sequence;
    uint64_t epoch;
    bool has_epoch;
    /* What may still be spent on checksums of what turns out to be no chunk: a file made of false beginnings must not
     * cost its size squared. */
    uint64_t patience_bytes;
    uint8_t *stored; /* a chunk with its header; as large as one can be in this file */
    uint8_t *raw;    /* its payload, or what is being searched */
    size_t raw_capacity;
    ZSTD_DCtx *decompressor;
};

/* How many of size_bytes were there. */
static size_t read_at(const struct source *source, uint64_t offset, void *to, size_t size_bytes) {
    size_t done_bytes = 0;
    if (offset >= source->size_bytes)
        return 0;
    if (size_bytes > source->size_bytes - offset)
        size_bytes = (size_t)(source->size_bytes - offset);
    if (source->descriptor < 0) {
        memcpy(to, source->bytes + offset, size_bytes);
        return size_bytes;
    }
    while (done_bytes < size_bytes) {
        ssize_t got =
            pread(source->descriptor, (char *)to + done_bytes, size_bytes - done_bytes, (off_t)(offset + done_bytes));
        if (got > 0)
            done_bytes += (size_t)got;
        else if (got == 0 || errno != EINTR)
            break;
    }
    return done_bytes;
}

static bool decode_header(const uint8_t *bytes, struct chunk_header *header) {
    *header = (struct chunk_header){
        .type = bytes[4],
        .flags = bytes[5],
        .sequence = load_u32(bytes + 8),
        .raw_bytes = load_u32(bytes + 12),
        .stored_bytes = load_u32(bytes + 16),
        .epoch = load_u32(bytes + 20),
        .checksum = load_u64(bytes + CAPTURE_CHECKSUM_OFFSET),
    };
    return memcmp(bytes, CAPTURE_CHUNK_MAGIC, CAPTURE_CHUNK_MAGIC_BYTES) == 0 &&
           header->raw_bytes <= CAPTURE_CHUNK_MAX_BYTES && header->stored_bytes <= header->raw_bytes;
}

/* Whether a whole chunk stands at scan->at; it is in scan->stored then. */
static bool fetch_chunk(struct scan *scan, struct chunk_header *header) {
    if (read_at(scan->source, scan->at, scan->stored, CAPTURE_CHUNK_HEADER_BYTES) < CAPTURE_CHUNK_HEADER_BYTES ||
        !decode_header(scan->stored, header))
        return false;
    size_t size_bytes = CAPTURE_CHUNK_HEADER_BYTES + (size_t)header->stored_bytes;
    if (scan->source->size_bytes - scan->at < size_bytes || scan->patience_bytes < size_bytes)
        return false;
    if (read_at(scan->source, scan->at, scan->stored, size_bytes) == size_bytes &&
        capture_checksum(scan->stored, header->stored_bytes) == header->checksum)
        return true;
    scan->patience_bytes -= size_bytes;
    return false;
}

static enum status reserve_raw(struct scan *scan, size_t size_bytes) {
    if (size_bytes <= scan->raw_capacity)
        return STATUS_OK;
    uint8_t *grown = realloc(scan->raw, size_bytes);
    if (grown == NULL)
        return STATUS_FAILED;
    scan->raw = grown;
    scan->raw_capacity = size_bytes;
    return STATUS_OK;
}

/* *payload is what it was before compression, or NULL when it is not what the header says. */
static enum status unpack(struct scan *scan, const struct chunk_header *header, const uint8_t **payload) {
    const uint8_t *stored = scan->stored + CAPTURE_CHUNK_HEADER_BYTES;
    *payload = NULL;
    if (!(header->flags & CAPTURE_CHUNK_ZSTD)) {
        *payload = header->stored_bytes == header->raw_bytes ? stored : NULL;
        return STATUS_OK;
    }
    TRY(reserve_raw(scan, header->raw_bytes));
    if (ZSTD_decompressDCtx(scan->decompressor, scan->raw, header->raw_bytes, stored, header->stored_bytes) ==
        header->raw_bytes)
        *payload = scan->raw;
    return STATUS_OK;
}

static enum status enter_epoch(struct scan *scan, uint32_t epoch) {
    struct reader *reader = scan->reader;
    if (scan->has_epoch && scan->epoch == epoch)
        return STATUS_OK;
    scan->has_epoch = true;
    scan->epoch = epoch;
    id_table_clear(&reader->strings);
    id_table_clear(&reader->frames);
    id_table_clear(&reader->stacks);
    return reader->visitor->epoch != NULL ? reader->visitor->epoch(reader->visitor->context, epoch) : STATUS_OK;
}

static enum status tell_chunk(struct scan *scan, const struct chunk_header *header) {
    struct capture_damage *damage = &scan->reader->damage;
    bool is_stale = header->sequence < scan->next_sequence || (scan->has_epoch && header->epoch < scan->epoch);
    if (!is_stale) {
        damage->lost_chunks += header->sequence - scan->next_sequence;
        scan->next_sequence = (uint64_t)header->sequence + 1;
    }
    /* A kind of chunk, or a way of packing one, that a later version has. */
    if (header->type != CAPTURE_CHUNK_RECORDS || (header->flags & ~CAPTURE_CHUNK_ZSTD) != 0)
        return STATUS_OK;
    const uint8_t *payload = NULL;
    if (!is_stale)
        TRY(unpack(scan, header, &payload));
    if (payload == NULL) {
        damage->lost_bytes += CAPTURE_CHUNK_HEADER_BYTES + header->stored_bytes;
        return STATUS_OK;
    }
    TRY(enter_epoch(scan, header->epoch));
    return reader_tell_records(scan->reader, payload, header->raw_bytes);
}

/* The next place from scan->at + 1 on where a chunk may begin, or the end of the file. */
static uint64_t find_magic(const struct scan *scan) {
    uint64_t from = scan->at + 1;
    for (;;) {
        size_t got = read_at(scan->source, from, scan->raw, SCAN_BYTES);
        const uint8_t *found = got >= CAPTURE_CHUNK_MAGIC_BYTES
                                   ? memmem(scan->raw, got, CAPTURE_CHUNK_MAGIC, CAPTURE_CHUNK_MAGIC_BYTES)
                                   : NULL;
        if (found != NULL)
            return from + (uint64_t)(found - scan->raw);
        if (got < SCAN_BYTES)
            return scan->source->size_bytes;
        from += got - (CAPTURE_CHUNK_MAGIC_BYTES - 1);
    }
}

static enum status tell_chunks(struct scan *scan) {
    while (scan->at < scan->source->size_bytes) {
        struct chunk_header header;
        if (fetch_chunk(scan, &header)) {
            scan->at += CAPTURE_CHUNK_HEADER_BYTES + (uint64_t)header.stored_bytes;
            TRY(tell_chunk(scan, &header));
        } else {
            uint64_t next = find_magic(scan);
            scan->reader->damage.lost_bytes += next - scan->at;
            scan->at = next;
        }
    }
    return STATUS_OK;
}

static enum status check_file_header(const struct source *source, const char *name, struct error *error) {
    uint8_t header[CAPTURE_FILE_HEADER_BYTES] = {0};
    if (read_at(source, 0, header, sizeof header) < sizeof header ||
        memcmp(header, CAPTURE_FILE_MAGIC, CAPTURE_FILE_MAGIC_BYTES) != 0)
        return error_set(error, STATUS_DAMAGED, "%s is not a strobe capture", name);
    unsigned major = load_u16(header + CAPTURE_FILE_MAGIC_BYTES);
    unsigned minor = load_u16(header + CAPTURE_FILE_MAGIC_BYTES + 2);
    if (major != CAPTURE_MAJOR)
        return error_set(error, STATUS_DAMAGED, "%s has capture format %u.%u, and this strobe reads %d.x", name, major,
                         minor, CAPTURE_MAJOR);
    return STATUS_OK;
}

/* What is missing, in words. */
static enum status judge(const struct capture_damage *damage, const char *name, struct error *error) {
    if (damage->lost_bytes == 0 && damage->lost_chunks == 0 && damage->lost_records == 0 && damage->ended)
        return STATUS_OK;
    if (damage->lost_chunks == 0 && damage->lost_records == 0 && !damage->ended)
        return error_set(error, STATUS_DAMAGED,
                         "%s has no end: strobe is still writing it, was killed, or the file was cut (%" PRIu64
                         " bytes at its end cannot be read)",
                         name, damage->lost_bytes);
    return error_set(error, STATUS_DAMAGED,
                     "%s is damaged: %" PRIu64 " bytes, %" PRIu64 " chunks and %" PRIu64 " records are lost%s", name,
                     damage->lost_bytes, damage->lost_chunks, damage->lost_records,
                     damage->ended ? "" : ", and it has no end");
}

static void release_reader(struct reader *reader) {
    id_table_release(&reader->strings);
    id_table_release(&reader->frames);
    id_table_release(&reader->stacks);
    map_release(&reader->processes);
    map_release(&reader->thread_slots);
    free(reader->threads);
}

static enum status read_source(const struct source *source, const char *name, const struct capture_visitor *visitor,
                               struct capture_damage *damage, struct error *error) {
    struct reader reader = {.visitor = visitor};
    struct scan scan = {.source = source, .reader = &reader, .at = CAPTURE_FILE_HEADER_BYTES};
    TRY(check_file_header(source, name, error));
    scan.patience_bytes = 4 * source->size_bytes + CAPTURE_CHUNK_HEADER_BYTES + CAPTURE_CHUNK_MAX_BYTES;
    uint64_t most_bytes = CAPTURE_CHUNK_HEADER_BYTES + (uint64_t)CAPTURE_CHUNK_MAX_BYTES;
    most_bytes = source->size_bytes < most_bytes ? source->size_bytes : most_bytes;
    scan.stored = malloc((size_t)most_bytes);
    scan.decompressor = ZSTD_createDCtx();
    enum status status = STATUS_FAILED;
    if (scan.stored != NULL && scan.decompressor != NULL)
        status = reserve_raw(&scan, SCAN_BYTES);
    if (status == STATUS_OK)
        status = tell_chunks(&scan);
    if (status == STATUS_OK)
        status = judge(&reader.damage, name, error);
    else
        status = error_set(error, status, "cannot read %s: %s", name,
                           status == STATUS_FAILED ? "out of memory" : status_name(status));
    if (damage != NULL)
        *damage = reader.damage;
    (void)ZSTD_freeDCtx(scan.decompressor);
    free(scan.stored);
    free(scan.raw);
    release_reader(&reader);
    return status;
}

enum status capture_read(const char *path, const struct capture_visitor *visitor, struct capture_damage *damage,
                         struct error *error) {
    struct stat information;
    /* A pipe that nobody writes to must not be waited for, only to be refused. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 || fstat(descriptor, &information) != 0) {
        enum status status = error_set(error, STATUS_FAILED, "cannot read %s: %s", path, strerror(errno));
        if (descriptor >= 0)
            (void)close(descriptor);
        return status;
    }
    enum status status;
    if (S_ISREG(information.st_mode)) {
        struct source source = {.descriptor = descriptor, .size_bytes = (uint64_t)information.st_size};
        status = read_source(&source, path, visitor, damage, error);
    } else {
        status = error_set(error, STATUS_FAILED, "cannot read %s: it is no regular file", path);
    }
    (void)close(descriptor);
    return status;
}

enum status capture_read_bytes(const uint8_t *bytes, size_t size_bytes, const struct capture_visitor *visitor,
                               struct capture_damage *damage, struct error *error) {
    struct source source = {.descriptor = -1, .bytes = bytes, .size_bytes = size_bytes};
    return read_source(&source, "the capture", visitor, damage, error);
}
