#include "terminal/python_syntax.h"

#include <string.h>

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/* Bytes above ASCII are of names, in code that compiles. */
static bool is_name_byte(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || is_digit(byte) || byte == '_' ||
           (unsigned char)byte >= 0x80;
}

static size_t name_length(const char *text, size_t size_bytes) {
    size_t length = 0;
    while (length < size_bytes && is_name_byte(text[length]))
        length++;
    return length;
}

/* Hard keywords; of the soft ones only those that hardly ever are a name. */
static bool is_keyword(const char *name, size_t length) {
    static const char *const KEYWORDS[] = {
        "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
        "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
        "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
        "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield",
    };
    for (size_t i = 0; i < sizeof KEYWORDS / sizeof KEYWORDS[0]; i++)
        if (strlen(KEYWORDS[i]) == length && memcmp(KEYWORDS[i], name, length) == 0)
            return true;
    return false;
}

static bool starts_triple(const char *text, size_t size_bytes, char quote) {
    return size_bytes >= 3 && text[0] == quote && text[1] == quote && text[2] == quote;
}

/* A replacement field of an f-string: what is in its braces, to the brace that closes it or the line's end. */
static size_t field_length(const char *text, size_t size_bytes) {
    size_t depth = 0;
    for (size_t i = 0; i < size_bytes; i++) {
        depth += text[i] == '{';
        if (text[i] == '}' && --depth == 0)
            return i + 1;
    }
    return 1; /* none */
}

/* To the end of the open string, or of the line. */
static size_t rest_of_string(struct syntax_state *state, const char *text, size_t size_bytes) {
    size_t at = 0;
    while (at < size_bytes) {
        if (text[at] == '\\' || (state->is_f && text[at] == '{' && at + 1 < size_bytes && text[at + 1] == '{')) {
            at += 2;
        } else if (state->is_f && text[at] == '{') {
            at += field_length(text + at, size_bytes - at);
        } else if (text[at] == state->quote &&
                   (!state->is_triple || starts_triple(text + at, size_bytes - at, text[at]))) {
            at += state->is_triple ? 3 : 1;
            state->quote = '\0';
            return at;
        } else {
            at++;
        }
    }
    return size_bytes;
}

/* Whether a name is what may stand before a string's quotes: rb, F, … */
static bool is_prefix(const char *name, size_t length) {
    return length <= 2 && strspn(name, "rRbBuUfFtT") >= length;
}

static size_t open_string(struct syntax_state *state, const char *text, size_t size_bytes, size_t prefix) {
    state->quote = text[prefix];
    state->is_triple = starts_triple(text + prefix, size_bytes - prefix, state->quote);
    state->is_f = false;
    for (size_t i = 0; i < prefix; i++)
        state->is_f = state->is_f || strchr("fFtT", text[i]) != NULL;
    size_t begin = prefix + (state->is_triple ? 3 : 1);
    return begin + rest_of_string(state, text + begin, size_bytes - begin);
}

/* 0x1f, 1_000, 1.5e-3j. */
static size_t number_length(const char *text, size_t size_bytes) {
    size_t length = 1;
    while (length < size_bytes) {
        bool is_sign = (text[length] == '+' || text[length] == '-') && strchr("eE", text[length - 1]) != NULL &&
                       (text[0] != '0' || text[1] != 'x');
        if (!is_name_byte(text[length]) && text[length] != '.' && !is_sign)
            break;
        length++;
    }
    return length;
}

static size_t next_name(struct syntax_state *state, const char *text, size_t size_bytes, enum syntax_kind *kind) {
    size_t length = name_length(text, size_bytes);
    if (length < size_bytes && (text[length] == '"' || text[length] == '\'') && is_prefix(text, length)) {
        *kind = SYNTAX_STRING;
        return open_string(state, text, size_bytes, length);
    }
    bool is_named = state->names_next;
    state->names_next = (length == 3 && memcmp(text, "def", 3) == 0) || (length == 5 && memcmp(text, "class", 5) == 0);
    *kind = is_keyword(text, length) ? SYNTAX_KEYWORD : is_named ? SYNTAX_NAME : SYNTAX_PLAIN;
    return length;
}

static size_t decorator_length(const char *text, size_t size_bytes) {
    size_t length = 1;
    while (length < size_bytes && (is_name_byte(text[length]) || text[length] == '.'))
        length++;
    return length;
}

size_t syntax_next(struct syntax_state *state, const char *text, size_t size_bytes, bool is_start,
                   enum syntax_kind *kind) {
    *kind = SYNTAX_PLAIN;
    if (size_bytes == 0)
        return 0;
    if (state->quote != '\0') {
        *kind = SYNTAX_STRING;
        return rest_of_string(state, text, size_bytes);
    }
    if (text[0] == '#') {
        *kind = SYNTAX_COMMENT;
        return size_bytes;
    }
    if (text[0] == '"' || text[0] == '\'') {
        *kind = SYNTAX_STRING;
        return open_string(state, text, size_bytes, 0);
    }
    if (is_digit(text[0]) || (text[0] == '.' && size_bytes > 1 && is_digit(text[1]))) {
        *kind = SYNTAX_NUMBER;
        return number_length(text, size_bytes);
    }
    if (is_name_byte(text[0]))
        return next_name(state, text, size_bytes, kind);
    if (text[0] == '@' && is_start) {
        *kind = SYNTAX_NAME;
        return decorator_length(text, size_bytes);
    }
    return 1;
}

void syntax_end_line(struct syntax_state *state, const char *text, size_t size_bytes) {
    bool is_continued = size_bytes > 0 && text[size_bytes - 1] == '\\';
    state->names_next = false;
    if (!state->is_triple && !is_continued)
        state->quote = '\0';
}
