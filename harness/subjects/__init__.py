"""Subjects: implementations under test, each behind one small protocol per kind."""
