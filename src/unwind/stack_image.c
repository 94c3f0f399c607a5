#include "unwind/stack_image.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_HEADER_BYTES = 32,
    /* DATA_STACK_CHUNK_SIZE is 16 KiB; a chunk is larger only for a frame that would not fit. */
    MAX_CHUNK_BYTES = 64 << 20,
    MAX_CHUNKS = 1 << 14,
    /* Of all copies of one thread's stack; a million frames take about a half of it. Beyond, frames are read one by one
     * where they are. */
    MAX_IMAGE_BYTES = 1 << 28,
    /* What is kept from one look to the next. */
    MAX_KEPT_BYTES = 1 << 24,
};

static bool piece_holds(const struct stack_piece *piece, remote_addr address, size_t size_bytes) {
    return address >= piece->address && address - piece->address < piece->size_bytes &&
           piece->size_bytes - (address - piece->address) >= size_bytes;
}

static const struct stack_piece *find_piece(const struct stack_image *image, remote_addr address, size_t size_bytes) {
    /* Who follows a stack goes on in the same chunk or in the next. */
    for (size_t i = image->last_hit; i < image->count && i <= image->last_hit + 1; i++)
        if (piece_holds(&image->pieces[i], address, size_bytes))
            return &image->pieces[i];
    for (size_t i = 0; i < image->count; i++)
        if (piece_holds(&image->pieces[i], address, size_bytes))
            return &image->pieces[i];
    return NULL;
}

static enum status read_through(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct stack_image *image = (struct stack_image *)memory;
    const struct stack_piece *piece = find_piece(image, address, size_bytes);
    if (piece == NULL)
        return memory_read(image->live, address, buffer, size_bytes);
    TRY(budget_take(image->budget, 1, size_bytes));
    memcpy(buffer, piece->bytes + (address - piece->address), size_bytes);
    image->last_hit = (size_t)(piece - image->pieces);
    return STATUS_OK;
}

void stack_image_init(struct stack_image *image, struct memory *live) {
    *image = (struct stack_image){.memory = {.read = read_through}, .live = live};
}

static void free_pieces(struct stack_image *image) {
    for (size_t i = 0; i < image->capacity; i++)
        free(image->pieces[i].bytes);
    free(image->pieces);
    image->pieces = NULL;
    image->capacity = 0;
    image->kept_bytes = 0;
}

void stack_image_release(struct stack_image *image) {
    free_pieces(image);
    stack_image_init(image, image->live);
}

void stack_image_clear(struct stack_image *image) {
    if (image->kept_bytes > MAX_KEPT_BYTES)
        free_pieces(image);
    image->count = 0;
    image->last_hit = 0;
    image->next_chunk = 0;
}

bool stack_image_holds(const struct stack_image *image, remote_addr address) {
    return find_piece(image, address, 1) != NULL;
}

static enum status grow(struct stack_image *image) {
    size_t capacity = image->capacity > 0 ? image->capacity * 2 : 4;
    struct stack_piece *pieces = realloc(image->pieces, capacity * sizeof pieces[0]);
    if (pieces == NULL)
        return STATUS_FAILED;
    memset(pieces + image->capacity, 0, (capacity - image->capacity) * sizeof pieces[0]);
    image->pieces = pieces;
    image->capacity = capacity;
    return STATUS_OK;
}

enum status stack_image_reserve(struct stack_image *image, remote_addr address, size_t size_bytes, uint8_t **bytes) {
    if (image->count >= MAX_CHUNKS || size_bytes > MAX_CHUNK_BYTES || size_bytes > MAX_IMAGE_BYTES - image->kept_bytes)
        return STATUS_LIMIT;
    if (image->count == image->capacity)
        TRY(grow(image));
    struct stack_piece *piece = &image->pieces[image->count];
    if (piece->capacity_bytes < size_bytes) {
        uint8_t *grown = realloc(piece->bytes, size_bytes);
        if (grown == NULL)
            return STATUS_FAILED;
        image->kept_bytes += size_bytes - piece->capacity_bytes;
        piece->bytes = grown;
        piece->capacity_bytes = size_bytes;
    }
    piece->address = address;
    piece->size_bytes = size_bytes;
    *bytes = piece->bytes;
    return STATUS_OK;
}

void stack_image_commit(struct stack_image *image) {
    image->count++;
}

/* Copies the chunk at image->next_chunk, whose `previous` becomes the next. */
static enum status copy_chunk(struct stack_image *image, const struct layout *layout) {
    remote_addr chunk = image->next_chunk;
    uint8_t header[CHUNK_HEADER_BYTES];
    uint8_t *bytes = NULL;
    TRY(memory_read(image->live, chunk, header, sizeof header));
    uint64_t size_bytes = load_u64(header + layout->stack_chunk.size);
    if (size_bytes < sizeof header || size_bytes > MAX_CHUNK_BYTES)
        return STATUS_TORN;
    TRY(stack_image_reserve(image, chunk, (size_t)size_bytes, &bytes));
    TRY(memory_read(image->live, chunk, bytes, (size_t)size_bytes));
    stack_image_commit(image);
    image->next_chunk = load_u64(bytes + layout->stack_chunk.previous);
    return STATUS_OK;
}

enum status stack_image_extend_to(struct stack_image *image, const struct layout *layout, remote_addr address) {
    while (image->next_chunk != 0) {
        enum status status = copy_chunk(image, layout);
        if (status != STATUS_OK) {
            image->next_chunk = 0;
            return status;
        }
        if (piece_holds(&image->pieces[image->count - 1], address, 1))
            return STATUS_OK;
    }
    return STATUS_NOT_FOUND;
}
