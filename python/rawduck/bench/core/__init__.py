"""What every experiment uses: cases and modes, running them in turns, results, reports and plots."""
