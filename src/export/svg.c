/* A flame graph as a picture that stands for itself: the outermost call on top, what it called below it, widths by
 * time. What is under the mouse is told by the viewer's own tooltips (<title>). */
#include "base/buffer.h"
#include "export/export.h"
#include "export/flame_tree.h"
#include "export/names.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = 1200, ROW = 18, MARGIN = 12, HEAD = 58, CHARACTER_WIDTH_TENTHS = 66, MAX_ROWS = 2000 };
/* Narrower ones cannot be seen, and there may be very many. */
#define MIN_WIDTH 0.15

struct writer {
    FILE *stream;
    const struct profile *profile;
    struct selection selection;
    struct functions functions;
    struct flame_tree tree;
    enum measure measure;
};

/* Control characters but tab and newline are not allowed in XML, however they are written; nor are U+FFFE and U+FFFF.
 */
static void put_text(FILE *stream, const char *text, size_t size_bytes) {
    for (size_t i = 0; i < size_bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '<')
            fputs("&lt;", stream);
        else if (byte == '&')
            fputs("&amp;", stream);
        else if (byte == '>')
            fputs("&gt;", stream); /* for "]]>" */
        else if (byte == '"')
            fputs("&quot;", stream);
        else if (byte < ' ' || byte == 0x7f)
            fprintf(stream, "\\x%02x", byte);
        else if (byte == 0xef && i + 2 < size_bytes && (unsigned char)text[i + 1] == 0xbf &&
                 (unsigned char)text[i + 2] >= 0xbe) {
            fputs("\\ufffe", stream);
            i += 2;
        } else
            putc(byte, stream);
    }
}

/* Locales write decimals in many ways, XML in one. */
static void put_hundredths(FILE *stream, double value) {
    uint64_t hundredths = (uint64_t)(value * 100 + 0.5);
    fprintf(stream, "%" PRIu64 ".%02" PRIu64, hundredths / 100, hundredths % 100);
}

static void put_value(FILE *stream, uint64_t value, enum measure measure) {
    switch (measure_unit(measure)) {
    case UNIT_NS:
        fprintf(stream, "%" PRIu64 ".%03" PRIu64 " s", value / 1000000000, value % 1000000000 / 1000000);
        break;
    case UNIT_BYTES:
        fprintf(stream, "%" PRIu64 " bytes", value);
        break;
    case UNIT_COUNT:
        fprintf(stream, "%" PRIu64, value);
        break;
    }
}

/* User code is warm, library code cool, what is no Python grey; a function has the same shade everywhere. */
static void put_colour(FILE *stream, const struct profile_frame *frame) {
    uint32_t hash = 2166136261u;
    for (const char *at = name_of_frame(frame); *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    unsigned shade = hash >> 8 & 0xff;
    if (frame->kind != CAPTURE_FRAME_PYTHON)
        fprintf(stream, "hsl(%u,10%%,%u%%)", 260u, 72 + shade % 10);
    else if (frame->is_library)
        fprintf(stream, "hsl(%u,38%%,%u%%)", 195 + shade % 35, 74 + hash % 8);
    else
        fprintf(stream, "hsl(%u,%u%%,%u%%)", 14 + shade % 34, 82u, 62 + hash % 9);
}

/* The first characters of a name, as many as fit. */
static size_t fitting_bytes(const char *name, double width) {
    size_t room = width > 12 ? (size_t)((width - 6) * 10 / CHARACTER_WIDTH_TENTHS) : 0;
    /* The last place is for what says that there is more. */
    if (room > 0 && strlen(name) > room)
        room--;
    size_t bytes = 0;
    for (size_t characters = 0; name[bytes] != '\0' && characters < room; characters++) {
        bytes++;
        while (((unsigned char)name[bytes] & 0xc0) == 0x80)
            bytes++;
    }
    return room < 3 ? 0 : bytes;
}

static void put_node(struct writer *writer, const struct flame_node *node, double left, double width) {
    const struct profile_frame *frame = &writer->profile->frames[writer->functions.one_frame[node->function]];
    const char *name = name_of_frame(frame);
    FILE *stream = writer->stream;
    double share = 100.0 * (double)node->total / (double)writer->tree.nodes[0].total;
    unsigned top = HEAD + (node->depth - 1) * ROW;
    size_t fits = fitting_bytes(name, width);
    fputs("<g><title>", stream);
    put_text(stream, name, strlen(name));
    fputs("\n", stream);
    put_text(stream, frame->file, strlen(frame->file));
    if (frame->first_line >= 0)
        fprintf(stream, ":%" PRId32, frame->first_line);
    fputs("\n", stream);
    put_value(stream, node->total, writer->measure);
    fputs(" (", stream);
    put_hundredths(stream, share);
    fputs(" %), self ", stream);
    put_value(stream, node->self, writer->measure);
    fputs("</title><rect x=\"", stream);
    put_hundredths(stream, left);
    fprintf(stream, "\" y=\"%u\" width=\"", top);
    put_hundredths(stream, width);
    fprintf(stream, "\" height=\"%d\" fill=\"", ROW - 1);
    put_colour(stream, frame);
    fputs("\"/>", stream);
    if (fits > 0) {
        fputs("<text x=\"", stream);
        put_hundredths(stream, left + 3);
        fprintf(stream, "\" y=\"%u\">", top + ROW - 6);
        put_text(stream, name, fits);
        fputs(name[fits] != '\0' ? "…</text>" : "</text>", stream);
    }
    fputs("</g>\n", stream);
}

/* A node's place: its parent's left side plus the widths of the children before it. Kept while its row is open. */
static void put_nodes(struct writer *writer, double *lefts) {
    const struct flame_node *nodes = writer->tree.nodes;
    double scale = (double)(WIDTH - 2 * MARGIN) / (double)nodes[0].total;
    uint32_t at = nodes[0].first_child;
    lefts[0] = MARGIN;
    lefts[1] = MARGIN;
    while (at != 0) {
        const struct flame_node *node = &nodes[at];
        double width = (double)node->total * scale;
        bool shown = width >= MIN_WIDTH && node->depth <= MAX_ROWS;
        if (shown) {
            put_node(writer, node, lefts[node->depth], width);
            if (node->first_child != 0 && node->depth < MAX_ROWS) {
                lefts[node->depth + 1] = lefts[node->depth];
                at = node->first_child;
                continue;
            }
        }
        /* The largest come first: what follows a node too narrow is narrower. */
        while (at != 0 && (!shown || nodes[at].next == 0)) {
            at = nodes[at].parent;
            shown = true;
        }
        if (at != 0) {
            lefts[nodes[at].depth] += (double)nodes[at].total * scale;
            at = nodes[at].next;
        }
    }
}

static unsigned rows_of(const struct writer *writer) {
    double scale = (double)(WIDTH - 2 * MARGIN) / (double)writer->tree.nodes[0].total;
    unsigned rows = 1;
    for (size_t i = 1; i < writer->tree.count; i++) {
        const struct flame_node *node = &writer->tree.nodes[i];
        if (node->depth > rows && (double)node->total * scale >= MIN_WIDTH)
            rows = node->depth;
    }
    return rows < MAX_ROWS ? rows : MAX_ROWS;
}

static enum status put_head(struct writer *writer, unsigned height) {
    struct buffer command;
    enum status status = STATUS_OK;
    FILE *stream = writer->stream;
    buffer_init(&command, NAME_LIMIT_BYTES);
    if (writer->profile->process_count > 0)
        status = name_append_command(&command, &writer->profile->processes[0]);
    fprintf(stream,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %u\" width=\"%d\" height=\"%u\">\n"
            "<style>text{font:11px ui-monospace,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;fill:#1c1917}"
            "rect{stroke:#fff;stroke-width:.5}.head{font:600 16px system-ui,sans-serif}"
            ".sub{font:12px system-ui,sans-serif;fill:#57534e}g:hover rect{stroke:#1c1917}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text class=\"head\" x=\"%d\" y=\"26\">",
            WIDTH, height, WIDTH, height, MARGIN);
    put_text(stream, buffer_text(&command), fitting_bytes(buffer_text(&command), WIDTH * 0.7));
    fprintf(stream, "</text>\n<text class=\"sub\" x=\"%d\" y=\"46\">%s: ", MARGIN, measure_name(writer->measure));
    put_value(stream, writer->tree.nodes[0].total, writer->measure);
    fprintf(stream, "; samples: %" PRIu64 " taken, %" PRIu64 " missed, %" PRIu64 " inconsistent</text>\n",
            writer->profile->counters.taken, writer->profile->counters.missed, writer->profile->counters.inconsistent);
    buffer_release(&command);
    return status;
}

static enum status put_picture(struct writer *writer) {
    double lefts[MAX_ROWS + 2] = {0};
    bool empty = writer->tree.nodes[0].total == 0;
    unsigned rows = empty ? 1 : rows_of(writer);
    TRY(put_head(writer, HEAD + rows * ROW + MARGIN));
    if (!empty)
        put_nodes(writer, lefts);
    fputs("</svg>\n", writer->stream);
    return STATUS_OK;
}

enum status export_write_svg(const struct profile *profile, const struct export_options *options, FILE *stream,
                             struct error *error) {
    struct writer writer = {.stream = stream, .profile = profile, .measure = export_measure(profile, options)};
    enum status status = selection_init(&writer.selection, profile, options);
    if (status == STATUS_OK)
        status = functions_init(&writer.functions, profile, true);
    if (status == STATUS_OK)
        status = flame_tree_init(&writer.tree, &writer.selection, &writer.functions, writer.measure);
    if (status == STATUS_OK)
        status = put_picture(&writer);
    flame_tree_release(&writer.tree);
    functions_release(&writer.functions);
    selection_release(&writer.selection);
    return export_finish(status, stream, error);
}
