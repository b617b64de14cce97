/* page_throughput.c - fifteen minutes of bytes to and from other sites, as a drawing with
 * numbers. */
#include <stdint.h>

#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"
#include "gateway/web/throughput.h"

#define LEFT   76
#define WIDTH  520
#define HEIGHT 150
#define BOTTOM 130
#define TOP    10
#define FLOOR  125000.0 /* the least full scale: 1 Mbit/s */

static const struct {
    const char *class, *name;
} flows[TB_FLOWS] = {
    [TB_FLOW_LOGICAL] = {"logical", "sent, as weights"},
    [TB_FLOW_ENCODED] = {"encoded", "sent, encoded"},
    [TB_FLOW_WIRE] = {"wire", "sent, with what TCP sent again"},
    [TB_FLOW_RECEIVED] = {"received", "received, encoded"},
};

static double highest_of(const struct tb_web_facts *facts)
{
    double highest = FLOOR, rates[TB_FLOWS];
    for (uint32_t back = 0; back < TB_THROUGHPUT_SLOTS; back++)
        for (int f = 0; tb_throughput_at(facts->throughput, facts->now_s, back, rates) && f < TB_FLOWS; f++)
            if (rates[f] > highest) highest = rates[f];
    return highest;
}

/* 1, 2 or 5 times a power of ten bits, and not below `bytes_per_s`. */
static double full_scale(double bytes_per_s)
{
    double scale = FLOOR;
    while (scale < bytes_per_s && scale < 1e18) {
        if (scale * 2 >= bytes_per_s) return scale * 2;
        if (scale * 5 >= bytes_per_s) return scale * 5;
        scale *= 10;
    }
    return scale;
}

static double x_of(uint32_t back)
{
    return WIDTH - (double)(WIDTH - LEFT) * back / (TB_THROUGHPUT_SLOTS - 1);
}

/* A slot in which nobody looked is a gap. */
static void draw_flow(FILE *out, const struct tb_web_facts *facts, enum tb_flow flow, double scale)
{
    double rates[TB_FLOWS];
    bool drawing = false;
    (void)fprintf(out, "<path class=\"%s\" d=\"", flows[flow].class);
    for (uint32_t i = 0; i < TB_THROUGHPUT_SLOTS; i++) {
        const uint32_t back = TB_THROUGHPUT_SLOTS - 1 - i;
        const bool is = tb_throughput_at(facts->throughput, facts->now_s, back, rates);
        const double y = is ? BOTTOM - rates[flow] / scale * (BOTTOM - TOP) : BOTTOM;
        if (is && !drawing) (void)fprintf(out, "M%.0f %.1fh1", x_of(back), y);
        if (is && drawing) (void)fprintf(out, "L%.0f %.1f", x_of(back), y);
        drawing = is;
    }
    (void)fputs("\"/>\n", out);
}

static void draw_axes(FILE *out, double scale)
{
    for (int part = 0; part <= 2; part++) {
        const int y = BOTTOM - (BOTTOM - TOP) * part / 2;
        (void)fprintf(
            out, "<line class=\"grid\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/><text x=\"%d\" y=\"%d\">",
            LEFT, y, WIDTH, y, LEFT - 6, y + 4);
        tb_markup_bit_rate(out, scale * part / 2);
        (void)fputs("</text>", out);
    }
    (void)fprintf(
        out, "<text class=\"first\" x=\"%d\" y=\"%d\">15 min ago</text><text x=\"%d\" y=\"%d\">now</text>\n",
        LEFT, HEIGHT - 3, WIDTH, HEIGHT - 3);
}

/* Of the newest slot that is over; the one before where that has none. */
static void say_now(FILE *out, const struct tb_web_facts *facts)
{
    double rates[TB_FLOWS];
    const bool known = tb_throughput_at(facts->throughput, facts->now_s, 1, rates) ||
                       tb_throughput_at(facts->throughput, facts->now_s, 0, rates);
    (void)fputs("<p class=\"legend\">", out);
    for (int flow = 0; flow < TB_FLOWS; flow++) {
        (void)fprintf(out, "<span><i class=\"%s\"></i>%s: ", flows[flow].class, flows[flow].name);
        if (known)
            tb_markup_bit_rate(out, rates[flow]);
        else
            (void)fputs("unknown", out);
        (void)fputs("</span> ", out);
    }
    (void)fputs("</p>\n", out);
}

void tb_page_throughput(FILE *out, const struct tb_web_facts *facts)
{
    static const enum tb_flow order[] = {TB_FLOW_LOGICAL, TB_FLOW_RECEIVED, TB_FLOW_WIRE, TB_FLOW_ENCODED};
    if (facts->throughput == NULL) return;
    const double scale = full_scale(highest_of(facts));
    (void)fprintf(out,
                  "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Bytes a second, 15 "
                  "minutes\">\n",
                  WIDTH + 4, HEIGHT);
    draw_axes(out, scale);
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        draw_flow(out, facts, order[i], scale);
    (void)fputs("</svg>\n", out);
    say_now(out, facts);
    (void)fputs(
        "<p class=\"soft\">Gathered while somebody looks, here or at /metrics; a gap: nobody did.</p>\n",
        out);
}
