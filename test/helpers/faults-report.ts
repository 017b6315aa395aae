import { appendFileSync } from "node:fs";

/** Where the tests of the tier `faults` put what they counted; test/faults/report.ts makes the page from it. */
export const reportFile = process.env["FAULTS_REPORT"];

/** One line of the report: numbers of the same name are added up, except those named `... max`, of which the largest counts. */
export function reportFigures(figures: Readonly<Record<string, number>>): void {
  if (reportFile !== undefined) appendFileSync(reportFile, `${JSON.stringify(figures)}\n`);
}
