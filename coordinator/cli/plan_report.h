/* The answer of `conclave plan`, for people and as JSON. */
#pragma once
#include "coordinator/engine.h"
#include "coordinator/measure/disk.h"
#include "coordinator/measure/layer.h"
#include "coordinator/measure/trunk.h"
#include "coordinator/residency/predict.h"
#include "coordinator/supervise/cards_found.h"

enum { PLAN_WHY = 200 };

struct plan_report {
    const struct engine_look *look;
    int kv;
    uint32_t expert_layers;   /* layers that have experts */
    uint64_t experts, places; /* in the file; at hand at once */
    uint64_t expert_bytes;    /* of all experts: weights */
    double hit;               /* part of the uses of experts that are on a card or in memory */
    double card_hit;          /* ... that have a slot on a card */
    char why[PLAN_WHY];       /* where the hit rate is from */
    int measured;             /* the rest holds */
    double measure_seconds;
    struct trunk_time trunk;
    struct layer_times layer; /* seconds[] above 0 absent: only where experts are read */
    struct disk_rate disk;    /* of the device alone, in reads of a matrix of an expert */
    uint64_t disk_read;
    uint32_t disk_depth;
    struct cards_found *found; /* rates of real cards; NULL: none are used */
    struct predict_cards cards; /* n 0: emulated, or not measured */
    struct predict_in in;
    struct predict_out out;
};
void plan_report_print(const struct plan_report *r);
int plan_report_json(const struct plan_report *r, struct err *e);
