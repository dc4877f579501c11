/* What cards are worth to a plan: their rates, measured by the probe with the model's own experts. */
#pragma once
#include "coordinator/cli/plan_report.h"

/* Fills in found and cards for experts of layer `at`, and the trunk's time if a card computes it. For emulated
 * cards, and cards that could not be measured, cards.n stays 0: nothing is expected of them. */
int plan_cards_measure(struct plan_report *r, uint32_t at, struct err *e);
