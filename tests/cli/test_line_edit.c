/* A line that is edited, from the bytes that a terminal sends, and the screen that comes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "cli/chat/line_history.h"
#include "cli/chat/line_view.h"
#include "files/utf8.h"
#include <stdio.h>

/* The event of the last byte. */
static tgi_line_event type(tgi_line *line, const char *keys)
{
  tgi_line_event event = TGI_LINE_OPEN;
  for (; *keys && event == TGI_LINE_OPEN; keys++) {
    event = tgi_line_push(line, *keys);
  }
  return event;
}

static void expect_line(const char *keys, tgi_line_event event, const char *text)
{
  tgi_line line = {.cursor = 0};
  assert_int_equal(type(&line, keys), event);
  assert_true(tgi_text_append(&line.text, "", 1));
  assert_string_equal(line.text.bytes, text);
  tgi_line_free(&line);
}

static void keys(void **state)
{
  (void)state;
  expect_line("abc\r", TGI_LINE_DONE, "abc");
  expect_line("abc\n", TGI_LINE_DONE, "abc");
  expect_line("\x04", TGI_LINE_END, "");
  expect_line("abc\x04", TGI_LINE_OPEN, "abc");
  expect_line("ab\x7f\x7f\x7f"
              "c\x08"
              "d",
              TGI_LINE_OPEN, "d");
  expect_line("h\xc3\xa4\x7fi", TGI_LINE_OPEN, "hi");
  expect_line("\xe4\xbd\xa0\xe5\xa5\xbd\033[D\x7f!", TGI_LINE_OPEN, "!\xe5\xa5\xbd");
  expect_line("bc\x01"
              "a\x05"
              "d",
              TGI_LINE_OPEN, "abcd");
  expect_line("ac\033[Db\033[C!", TGI_LINE_OPEN, "abc!");
  expect_line("ac\x02"
              "b\x06!",
              TGI_LINE_OPEN, "abc!");
  expect_line("bc\033[Ha\033[Fd", TGI_LINE_OPEN, "abcd");
  expect_line("bc\033OHa\033OFd", TGI_LINE_OPEN, "abcd");
  expect_line("bc\033[1~a\033[4~d\033[1;5Dx", TGI_LINE_OPEN, "abcxd");
  expect_line("xabc\x01\033[3~\x04", TGI_LINE_OPEN, "bc");
  expect_line("one two  \x17!", TGI_LINE_OPEN, "one !");
  expect_line("\x17one\x17\x17!", TGI_LINE_OPEN, "!");
  expect_line("abc\x02\x15", TGI_LINE_OPEN, "c");
  expect_line("abc\x02\x0b", TGI_LINE_OPEN, "ab");
  expect_line("a\033\rb\r", TGI_LINE_DONE, "a\nb");
  expect_line("a\033bc\x07\x1c", TGI_LINE_OPEN, "abc");
  /* Sequences without a meaning, however long. */
  expect_line("a\033[5~\033[15;2;3;4;5;6;7;8;9;10;11;12~\033OP\033\033[Cb", TGI_LINE_OPEN, "ab");
}

static void pasted(void **state)
{
  (void)state;
  expect_line("a\033[200~b\rc\r\nd\ne\033[201~f\r", TGI_LINE_DONE, "ab\nc\nd\nef");
  expect_line("\033[200~\r\n\r\n\r\033[201~", TGI_LINE_OPEN, "\n\n\n");
  expect_line("\033[200~/quit\r\033[201~\x04", TGI_LINE_OPEN, "/quit\n");
  /* Beginnings of the mark, and other sequences, are text. */
  expect_line("\033[200~a\033[20\033[31m\033\033[201~b\r", TGI_LINE_DONE, "a\033[20\033[31m\033b");
  tgi_line line = {.cursor = 0};
  assert_int_equal(type(&line, "\033[200~lost\033[20"), TGI_LINE_OPEN);
  tgi_line_clear(&line);
  assert_int_equal(type(&line, "a\r"), TGI_LINE_DONE);
  assert_int_equal(line.text.size, 1);
  tgi_line_free(&line);
}

/* ---- lines before ---- */

static void recall(tgi_line_history *h, tgi_line *line, tgi_line_event way, const char *wanted)
{
  assert_true(tgi_history_recall(h, line, way == TGI_LINE_OLDER));
  assert_int_equal(line->text.size, strlen(wanted));
  assert_memory_equal(line->text.size ? line->text.bytes : "", wanted, strlen(wanted));
  assert_int_equal(line->cursor, line->text.size);
}

static void add_line(tgi_line_history *h, const char *text)
{
  tgi_text_buffer t = {NULL, 0, 0};
  assert_true(tgi_text_append(&t, text, strlen(text)));
  tgi_history_add(h, &t);
  tgi_text_free(&t);
}

static void lines_before(void **state)
{
  (void)state;
  static tgi_line_history h;
  tgi_line line = {.cursor = 0};
  assert_int_equal(type(&line, "\033[A"), TGI_LINE_OLDER);
  assert_int_equal(type(&line, "\033OB"), TGI_LINE_NEWER);
  assert_int_equal(type(&line, "\x10"), TGI_LINE_OLDER);
  assert_int_equal(type(&line, "\x0e"), TGI_LINE_NEWER);
  recall(&h, &line, TGI_LINE_OLDER, "");
  add_line(&h, "one");
  add_line(&h, "two");
  add_line(&h, "two");
  add_line(&h, "");
  assert_int_equal(type(&line, "dra"), TGI_LINE_OPEN);
  recall(&h, &line, TGI_LINE_NEWER, "dra");
  recall(&h, &line, TGI_LINE_OLDER, "two");
  recall(&h, &line, TGI_LINE_OLDER, "one");
  recall(&h, &line, TGI_LINE_OLDER, "one");
  recall(&h, &line, TGI_LINE_NEWER, "two");
  recall(&h, &line, TGI_LINE_NEWER, "dra");
  for (int i = 0; i < TGI_HISTORY_LINES + 5; i++) {
    char text[16];
    snprintf(text, sizeof text, "line %d", i);
    add_line(&h, text);
  }
  for (int i = 0; i < TGI_HISTORY_LINES + 5; i++) {
    assert_true(tgi_history_recall(&h, &line, true));
  }
  recall(&h, &line, TGI_LINE_OLDER, "line 5");
  tgi_history_free(&h);
  tgi_line_free(&line);
}

/* ---- a screen, which does what a terminal does with the bytes that the view uses ---- */

enum { kRows = 24, kColumns = 10 };

typedef struct screen {
  uint32_t cell[kRows][kColumns]; /* 0: nothing; 1: the right half of a wide character */
  int row, column;
  bool full; /* behind the last column: the next character begins a row */
} screen;

static void break_row(screen *s)
{
  s->row++;
  s->full = false;
  assert_in_range(s->row, 0, kRows - 1);
}

static void control(screen *s, const char **at)
{
  const int n = (int)strtol(*at, (char **)(uintptr_t)at, 10);
  switch (*(*at)++) {
  case 'A':
    s->row -= n;
    break;
  case 'B':
    s->row += n;
    break;
  case 'C':
    s->column += n;
    break;
  case 'J':
    memset(&s->cell[s->row][s->column], 0,
           (size_t)((kRows - s->row) * kColumns - s->column) * sizeof s->cell[0][0]);
    break;
  default:
    fail_msg("expected a sequence of a terminal, got %s", *at - 1);
  }
  s->full = false;
  assert_in_range(s->row, 0, kRows - 1);
  assert_in_range(s->column, 0, kColumns - 1);
}

static void put(screen *s, uint32_t point)
{
  const int width = point >= 0x4e00 ? 2 : 1;
  if (s->full || s->column + width > kColumns) {
    break_row(s);
    s->column = 0;
  }
  s->cell[s->row][s->column] = point;
  if (width == 2) {
    s->cell[s->row][s->column + 1] = 1;
  }
  s->column += width;
  s->full = s->column == kColumns;
  s->column -= s->full ? 1 : 0;
}

static void show(screen *s, const tgi_text_buffer *out)
{
  assert_true(tgi_text_append((tgi_text_buffer *)(uintptr_t)out, "", 1));
  for (const char *at = out->bytes; *at;) {
    uint32_t point;
    const size_t size = tgi_utf8_decode(at, strlen(at), &point);
    assert_int_not_equal(size, 0);
    at += size;
    if (point == '\033' && *at == '[') {
      at++;
      control(s, &at);
    } else if (point == '\r') {
      s->column = 0;
      s->full = false;
    } else if (point == '\n') {
      break_row(s);
    } else {
      put(s, point);
    }
  }
}

/* What a fresh screen shows of prompt and text, by the rules of terminals alone. */
static void expect_screen(const screen *s, const tgi_line *line)
{
  screen wanted = {.row = 0}, cursor = {.row = 0};
  bool found = false;
  put(&wanted, '>');
  put(&wanted, ' ');
  for (size_t at = 0; at <= line->text.size;) {
    if (at == line->cursor) {
      cursor = wanted;
      found = true;
      if (cursor.full && (at == line->text.size || line->text.bytes[at] != '\n')) {
        break_row(&cursor);
        cursor.column = 0;
      }
    }
    if (at == line->text.size) {
      break;
    }
    uint32_t point;
    at += tgi_utf8_decode(line->text.bytes + at, line->text.size - at, &point);
    if (point == '\n') {
      break_row(&wanted);
      wanted.column = 0;
    } else if (point == '\t') {
      for (int i = 0; i < 4; i++) {
        put(&wanted, ' ');
      }
    } else if (point < ' ') {
      put(&wanted, '^');
      put(&wanted, point ^ 0x40);
    } else {
      put(&wanted, point);
    }
  }
  assert_true(found);
  for (int row = 0; row < kRows; row++) {
    for (int column = 0; column < kColumns; column++) {
      uint32_t got = s->cell[row][column], want = wanted.cell[row][column];
      if (got != want && !(got == ' ' && want == 0)) { /* the space that leaves a full row */
        fail_msg("row %d, column %d: expected %x, got %x", row, column, want, got);
      }
    }
  }
  if (s->row != cursor.row || s->column != cursor.column) {
    fail_msg("cursor: expected row %d, column %d, got row %d, column %d", cursor.row, cursor.column,
             s->row, s->column);
  }
}

static void screens(void **state)
{
  (void)state;
  static const char *const keys[] = {
      "h",
      "e",
      "l",
      "l",
      "o",
      " ",
      "w",
      "o",
      "r",
      "l",
      "d",
      "\033[D",
      "!",
      "\x01",
      "x",
      "\x05",
      "\xe4\xbd\xa0",
      "\033\r",
      "\xc3\xa4",
      "\x7f",
      "\x7f",
      "\x17",
      "\033[200~one\rtwo\033[31m\r\rthree is long\033[201~",
      "\033[D",
      "\x02",
      "z",
      "\x01",
      "\x06",
      "\x06",
      "\x06",
      "\x06",
      "\x06",
      "\x06",
      "\x06",
      "\x06",
      "\x06",
      "\x0b",
      "12345678",
      "9",
      "\033\r",
      "1234567890",
      "\033\r",
      "a",
      "\033[D",
      "\033[D",
      "\x7f",
      "\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0",
      "\x15",
      "a\tb\tc\td\t",
      "\x02",
  };
  screen s = {.row = 0};
  tgi_line line = {.cursor = 0};
  tgi_text_buffer out = {NULL, 0, 0};
  tgi_line_view view = tgi_line_view_begin(kColumns);
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    assert_int_equal(type(&line, keys[i]), TGI_LINE_OPEN);
    assert_true(tgi_line_view_draw(&view, &line, &out));
    show(&s, &out);
    expect_screen(&s, &line);
    out.size = 0;
    if (i % 7 == 0) { /* drawn again where it is */
      assert_true(tgi_line_view_resize(&view, &line, kColumns, &out));
      show(&s, &out);
      expect_screen(&s, &line);
      out.size = 0;
    }
  }
  tgi_text_free(&out);
  tgi_line_free(&line);
}

/* What is typed at the end is all that is written. */
static void appending_is_cheap(void **state)
{
  (void)state;
  tgi_line line = {.cursor = 0};
  tgi_text_buffer out = {NULL, 0, 0};
  tgi_line_view view = tgi_line_view_begin(80);
  assert_true(tgi_line_view_draw(&view, &line, &out));
  for (int i = 0; i < 3; i++) {
    out.size = 0;
    assert_int_equal(type(&line, "ab"), TGI_LINE_OPEN);
    assert_true(tgi_line_view_draw(&view, &line, &out));
    assert_true(out.size == 2 && memcmp(out.bytes, "ab", 2) == 0);
  }
  out.size = 0;
  assert_true(tgi_line_view_leave(&view, &line, &out));
  assert_true(out.size == 2 && memcmp(out.bytes, "\r\n", 2) == 0);
  /* A row of no more than the least width, and text that fills it. */
  view = tgi_line_view_begin(1);
  assert_int_equal(view.columns, 8);
  assert_int_equal(type(&line, "\x15"
                               "123456"),
                   TGI_LINE_OPEN);
  out.size = 0;
  assert_true(tgi_line_view_leave(&view, &line, &out));
  assert_true(tgi_text_append(&out, "", 1));
  assert_string_equal(out.bytes, "\r\033[J> 123456 \r");
  tgi_text_free(&out);
  tgi_line_free(&line);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys),
      cmocka_unit_test(pasted),
      cmocka_unit_test(lines_before),
      cmocka_unit_test(screens),
      cmocka_unit_test(appending_is_cheap),
  };
  return cmocka_run_group_tests_name("line_edit", tests, NULL, NULL);
}
